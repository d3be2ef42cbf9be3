"""alltoall and reducescatter on torch tensors over real processes: what is not in tests/frameworks."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import ciranda.torch as hvd

pytestmark = pytest.mark.multiprocess

SIZES = pytest.mark.parametrize("n_ranks", [1, 3])


def _inputs(dtype: torch.dtype, shape: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(len(shape))
    return [torch.randint(-20, 20, shape, generator=generator).to(dtype) for _ in range(hvd.size())]


def _check_reducescatter() -> None:
    n, rank = hvd.size(), hvd.rank()
    for dtype in (torch.float32, torch.bfloat16):
        for shape in ((3 * n + 1, 2), (0, 3)):
            inputs = _inputs(dtype, shape)
            total = torch.stack(inputs).sum(dim=0)
            rows = [shape[0] // n + (r < shape[0] % n) for r in range(n)]
            share = total[sum(rows[:rank]) :][: rows[rank]]
            results = [
                hvd.reducescatter(inputs[rank], compression=hvd.Compression.fp16, op=hvd.Sum),
                *hvd.grouped_reducescatter([inputs[rank], inputs[rank].t().contiguous().t()], op=hvd.Sum),
            ]
            for output in (torch.empty_like(share), torch.stack([share, share], dim=-1)[..., 0]):  # the latter strided
                results.append(hvd.reducescatter(inputs[rank], op=hvd.Sum, output=output))
                assert results[-1] is output
            for result in results:
                assert result.dtype == dtype
                assert torch.equal(result, share)
    mean = hvd.reducescatter(torch.full((n, 2), float(rank)))
    torch.testing.assert_close(mean, torch.full((1, 2), (n - 1) / 2))


@SIZES
def test_reducescatter(worlds: Any, n_ranks: int) -> None:
    worlds.of(n_ranks).run(_check_reducescatter)


def _check_alltoall() -> None:
    n, rank = hvd.size(), hvd.rank()
    # Rank r sends r + s rows, each of them 10 * r + s, to rank s.
    counts = [rank + to for to in range(n)]
    mine = torch.cat([torch.full((rank + to, 2), 10.0 * rank + to) for to in range(n)])
    expected = torch.cat([torch.full((source + rank, 2), 10.0 * source + rank) for source in range(n)])
    for kind in (torch.int32, torch.int64, None):
        splits = counts if kind is None else torch.tensor(counts, dtype=kind)
        for output, received in (hvd.alltoall(mine, splits), hvd.grouped_alltoall([mine], [splits])[0]):
            assert torch.equal(output, expected)
            assert received.tolist() == [source + rank for source in range(n)]
        assert hvd.alltoall(mine, splits)[1].dtype == (kind or torch.int32)


def _check_alltoall_in_place() -> None:
    n, rank = hvd.size(), hvd.rank()
    for dtype in (torch.float32, torch.bfloat16, torch.bool, torch.complex64):
        inputs = [tensor.to(dtype) for tensor in _inputs(torch.float32, (2 * n, 5))]
        expected = torch.cat([each[2 * rank :][:2] for each in inputs])
        strided = torch.stack([inputs[rank]] * 2, dim=-1)[..., 0]
        for mine in (inputs[rank].clone(), strided):
            version = mine._version
            assert hvd.alltoall_(mine) is mine
            assert torch.equal(mine, expected)
            assert mine._version > version, "autograd has not heard of it"
        both = [inputs[rank].clone(), inputs[rank].clone()]
        results = hvd.synchronize(hvd.grouped_alltoall_async_(both))
        assert [result is mine for result, mine in zip(results, both, strict=True)] == [True, True]
        assert all(torch.equal(result, expected) for result in results)


@SIZES
def test_alltoall_in_place(worlds: Any, n_ranks: int) -> None:
    worlds.of(n_ranks).run(_check_alltoall_in_place)


@SIZES
def test_alltoall(worlds: Any, n_ranks: int) -> None:
    worlds.of(n_ranks).run(_check_alltoall)


def _check_errors() -> None:
    for splits in ([1.0, 1.0], torch.ones(2, 1), [], [True, True]):
        with pytest.raises(ValueError, match="whole numbers"):
            hvd.alltoall(torch.ones(2), splits)
    with pytest.raises(ValueError, match="splits for 1"):
        hvd.grouped_alltoall([torch.ones(2)] * 2, [None])
    with pytest.raises(ValueError, match="2 ranks, these are 3"):
        hvd.alltoall(torch.ones(4), torch.tensor([1, 1, 2]))
    with pytest.raises(ValueError, match="must add up"):
        hvd.alltoall(torch.ones(2), torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="2 equal parts"):
        hvd.alltoall(torch.ones(3))
    with pytest.raises(ValueError, match="scalar"):
        hvd.reducescatter(torch.ones(()))
    with pytest.raises(ValueError, match="lies in the memory of a tensor"):
        hvd.reducescatter(whole := torch.ones(2, 3), output=whole[1:])
    with pytest.raises(ValueError, match=r"the output is float32\[3\] but the "):
        hvd.reducescatter(torch.ones(2), output=torch.empty(3))
    for tensor, compression in (
        (torch.ones(2, requires_grad=True), hvd.Compression.none),
        (torch.ones(2), hvd.Compression.fp16),
    ):
        with pytest.raises(ValueError, match="neither compression nor gradient"):
            hvd.reducescatter(tensor, compression=compression, output=torch.empty(1))
    assert hvd.alltoall(torch.ones(2)).tolist() == [1.0, 1.0]


def test_errors(worlds: Any) -> None:
    worlds.of(2).run(_check_errors)
