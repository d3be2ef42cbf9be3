"""reduce, gather and scatter of torch tensors over real processes: what is not in tests/frameworks."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import ciranda.torch as hvd
from ciranda.errors import InvalidArgumentError, MismatchError

pytestmark = pytest.mark.multiprocess


def _check_reduce() -> None:
    n, rank = hvd.size(), hvd.rank()
    for root in range(n):
        total = torch.full((3, 4), n * (n + 1) / 2)
        one, two, three = (torch.full((3, 4), rank + 1.0) for _ in range(3))
        assert hvd.reduce_(one, root, hvd.Sum) is one
        assert hvd.synchronize(hvd.reduce_async_(two, root, hvd.Sum)) is two
        assert hvd.grouped_reduce_([three], root, hvd.Sum)[0] is three
        for mine in (one, two, three):
            assert torch.equal(mine, total if rank == root else torch.full((3, 4), rank + 1.0))
    ones = torch.full((3, 4), float(rank + 1)).t()  # not contiguous
    scaled = hvd.reduce(ones, 0, hvd.Sum, prescale_factor=0.5, postscale_factor=6.0)
    assert scaled is None or torch.equal(scaled, torch.full((4, 3), 1.5 * n * (n + 1)))
    hvd.reduce_(ones, n - 1, hvd.Sum)
    assert ones.unique().tolist() == [n * (n + 1) / 2 if rank == n - 1 else rank + 1]


def _check_scatter() -> None:
    """By splits that are a list or a tensor."""
    n, rank = hvd.size(), hvd.rank()
    counts = [2 * each for each in range(n)]
    everything = torch.arange(float(sum(counts)))
    for splits in (counts, torch.tensor(counts, dtype=torch.int32)):
        part = hvd.scatter(everything if rank == 0 else everything[:0], 0, splits)
        assert torch.equal(part, everything.split(counts)[rank])


def test_in_place_and_by_splits(worlds: Any) -> None:
    worlds.of(3).run(_check_reduce)
    worlds.of(3).run(_check_scatter)


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


def test_in_a_process_set_and_errors(worlds: Any) -> None:
    worlds.of(3).run(_check_in_a_set)
    worlds.of(3).run(_check_errors)


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
    with pytest.raises(ValueError, match="reduce has a gradient with op=Average and Sum only"):
        largest.sum().backward()


def test_what_stands_for_a_result_elsewhere(worlds: Any) -> None:
    worlds.of(2).run(_check_without_elements)
