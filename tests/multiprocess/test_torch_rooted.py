"""reduce, gather and scatter of torch tensors over real processes, against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from ranks import Ranks

import ciranda.torch as hvd
from ciranda.errors import InvalidArgumentError, MismatchError

pytestmark = pytest.mark.multiprocess

DTYPES = [torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]
DTYPES += [torch.complex64]
OPS = {hvd.Sum: np.sum, hvd.Average: np.mean, hvd.Min: np.min, hvd.Max: np.max, hvd.Product: np.prod}


def _input(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Small whole numbers, which every type holds, and so do their sums and products."""
    return torch.randint(0, 4, shape, generator=torch.Generator().manual_seed(rank)).to(dtype)


def _wide(tensors: list[torch.Tensor]) -> Any:
    dtype = torch.complex128 if tensors[0].dtype.is_complex else torch.float64
    return np.stack([tensor.to(dtype).numpy() for tensor in tensors])


def _equals(tensor: torch.Tensor, wanted: Any, like: torch.Tensor) -> None:
    assert tensor.dtype == like.dtype
    expected = torch.as_tensor(np.asarray(wanted)).to(like.dtype)
    torch.testing.assert_close(tensor, expected, rtol=1e-2 if like.dtype.itemsize == 2 else 1e-6, atol=0)


def _check_reduce() -> None:
    n, rank = hvd.size(), hvd.rank()
    for dtype in DTYPES:
        for shape in ((), (0, 2), (70, 41)):
            inputs = [_input(r, shape, dtype) for r in range(n)]
            for op, of_numpy in OPS.items():
                if dtype == torch.bool and op not in (hvd.Min, hvd.Max):
                    continue
                if dtype.is_complex and op in (hvd.Min, hvd.Max):
                    continue
                wanted = of_numpy(_wide(inputs), axis=0)
                wanted = wanted if dtype.is_floating_point or dtype.is_complex else np.trunc(wanted)
                root = op % n
                results = [
                    hvd.reduce(inputs[rank], root, op),
                    hvd.synchronize(hvd.reduce_async(inputs[rank], root, op, name="async")),
                    *(
                        hvd.grouped_reduce([inputs[rank], inputs[rank].flip(0) if shape else inputs[rank]], root, op)
                        or []
                    ),
                ][:3]
                for result in results:
                    assert (result is None) == (rank != root)
                    if result is not None:
                        _equals(result, wanted, inputs[rank])
                one, two, three = (inputs[rank].clone() for _ in range(3))
                assert hvd.reduce_(one, root, op) is one
                assert hvd.synchronize(hvd.reduce_async_(two, root, op)) is two
                assert hvd.grouped_reduce_([three], root, op)[0] is three
                for mine in (one, two, three):
                    _equals(mine, wanted if rank == root else _wide([inputs[rank]])[0], mine)
    ones = torch.full((3, 4), float(rank + 1)).t()  # not contiguous
    scaled = hvd.reduce(ones, 0, hvd.Sum, prescale_factor=0.5, postscale_factor=6.0)
    assert scaled is None or torch.equal(scaled, torch.full((4, 3), 1.5 * n * (n + 1)))
    hvd.reduce_(ones, n - 1, hvd.Sum)
    assert ones.unique().tolist() == [n * (n + 1) / 2 if rank == n - 1 else rank + 1]


def test_reduce(circle: Ranks) -> None:
    circle.run(_check_reduce)


def _check_gather_and_scatter() -> None:
    n, rank = hvd.size(), hvd.rank()
    for dtype in DTYPES:
        for counts in ([3] * n, [7 * r for r in range(n)], [0] * n):
            for root in range(n):
                mine = _input(rank, (counts[rank], 2), dtype)
                everything = torch.cat([_input(r, (counts[r], 2), dtype) for r in range(n)])
                gathered = [
                    hvd.gather(mine, root),
                    hvd.synchronize(hvd.gather_async(mine, root, name="gather")),
                    *(hvd.grouped_gather([mine, mine.double()], root) or [None])[:1],
                ]
                for result in gathered:
                    assert (result is None) == (rank != root)
                    if result is not None:
                        _equals(result, _wide([everything])[0], mine)
                given = everything if rank == root else torch.empty((0, 2), dtype=dtype)
                for splits in (counts, torch.tensor(counts, dtype=torch.int32)):
                    for part in (
                        hvd.scatter(given, root, splits),
                        hvd.synchronize(hvd.scatter_async(given, root, splits, name="scatter")),
                        hvd.grouped_scatter([given, given.clone()], root, [splits, None])[0],
                    ):
                        _equals(part, _wide([mine])[0], mine)
                rows = [len(everything) // n + (r < len(everything) % n) for r in range(n)]
                _equals(hvd.scatter(given, root), _wide([everything.split(rows)[rank]])[0], mine)


def test_gather_and_scatter(circle: Ranks) -> None:
    circle.run(_check_gather_and_scatter)


def _check_in_a_set() -> None:
    pair = hvd.add_process_set([0, 2])
    if pair.included():
        mine = torch.tensor([hvd.rank(), 10])
        total = hvd.reduce(mine, 2, hvd.Sum, process_set=pair)
        rows = hvd.gather(mine, 0, process_set=pair)
        assert (None if total is None else total.tolist()) == (None if hvd.rank() == 0 else [2, 20])
        assert (None if rows is None else rows.tolist()) == (None if hvd.rank() == 2 else [0, 10, 2, 10])
        assert hvd.scatter(mine, 2, process_set=pair).tolist() == [2 if hvd.rank() == 0 else 10]
        with pytest.raises(InvalidArgumentError, match="root_rank 1 is not in the process set"):
            hvd.reduce(mine, 1, process_set=pair)
    hvd.remove_process_set(pair)


def _check_errors() -> None:
    n, rank = hvd.size(), hvd.rank()
    odd = int(rank == n - 1)
    for call, text in (
        (lambda: hvd.reduce(torch.ones(3 + odd), 0, name="m"), "shape"),
        (lambda: hvd.gather(torch.ones(3, dtype=torch.float64 if odd else torch.float32), 0, name="m"), "dtype"),
        (lambda: hvd.scatter(torch.ones(3), odd, name="m"), "root_rank 0"),
    ):
        with pytest.raises(MismatchError, match=text):
            call()
    with pytest.raises(InvalidArgumentError, match=f"root_rank {n} is not a rank"):
        hvd.gather(torch.ones(3), n)
    with pytest.raises(InvalidArgumentError, match="a scalar has no first dimension"):
        hvd.gather(torch.ones(()), 0)
    with pytest.raises(InvalidArgumentError, match=r"must add up|rank 0 gave splits"):
        hvd.scatter(torch.ones(3), 0, [9] * n)
    assert hvd.scatter(torch.ones(n), 0).tolist() == [1.0]


def test_in_a_process_set_and_errors(circles: Any) -> None:
    circles.of(3).run(_check_in_a_set, timeout=30)
    circles.of(3).run(_check_errors, timeout=30)


def _check_without_elements() -> None:
    """Where a gradient is recorded, the other ranks have something for their backward pass."""
    x = torch.ones(2, 3, requires_grad=True)
    for result in (hvd.reduce(x, 0, hvd.Sum), hvd.gather(x, 0)):
        assert result is not None
        assert result.requires_grad
        assert result.numel() == (0 if hvd.rank() else len(result) * 3)
        result.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.full((2, 3), 2.0))
    with torch.no_grad():
        assert (hvd.reduce(x, 0) is None) == (hvd.gather(x, 0) is None) == (hvd.rank() != 0)
    largest = hvd.reduce(x, 0, hvd.Max)
    assert largest is not None
    with pytest.raises(ValueError, match="reduce has a gradient for op=Average and op=Sum only"):
        largest.sum().backward()


def test_what_stands_for_a_result_elsewhere(circles: Any) -> None:
    circles.of(2).run(_check_without_elements)
