"""Weighted averages, the divisor of averages, their gradients, and checks of consistency, on torch tensors."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import ciranda.torch as hvd
from ciranda.errors import MismatchError

pytestmark = pytest.mark.multiprocess


def _check_weights() -> None:
    n, rank = hvd.size(), hvd.rank()
    total = n * (n + 1) / 2
    wanted = sum(r * (r + 1) for r in range(n)) / total
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        mine = torch.full((5,), float(rank), dtype=dtype)
        close = {"rtol": 1e-2 if dtype == torch.bfloat16 else 1e-6, "atol": 0.0}
        target = torch.full((5,), wanted, dtype=dtype)
        torch.testing.assert_close(hvd.allreduce(mine, weight=rank + 1), target, **close)
        torch.testing.assert_close(hvd.synchronize(hvd.allreduce_async(mine, weight=rank + 1)), target, **close)
        torch.testing.assert_close(hvd.allreduce_(mine.clone(), weight=rank + 1), target, **close)
        for result in hvd.grouped_allreduce([mine, mine.double()], weight=rank + 1):
            torch.testing.assert_close(result, target.to(result.dtype), **close)
        for result in hvd.grouped_allreduce_([mine.clone(), mine.double()], weight=rank + 1):
            torch.testing.assert_close(result, target.to(result.dtype), **close)
    leaf = torch.full((3,), float(rank), dtype=torch.float64, requires_grad=True)
    (hvd.allreduce(leaf, weight=rank + 1, postscale_factor=2.0) * (rank + 1)).sum().backward()  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    torch.testing.assert_close(leaf.grad, torch.full((3,), 2.0 * total * (rank + 1) / total, dtype=torch.float64))
    with pytest.raises(ValueError, match=f"the weight -1 of rank {n - 1} is not a finite number, 0 or more"):
        hvd.allreduce(torch.ones(3), weight=-1.0 if rank == n - 1 else 1.0, name="negative")
    with pytest.raises(ValueError, match="weight needs op=Average"):
        hvd.allreduce(torch.ones(3), op=hvd.Sum, weight=1.0)


@pytest.mark.parametrize("n_ranks", [1, 3])
def test_weighted_averages(worlds: Any, n_ranks: int) -> None:
    worlds.of(n_ranks).run(_check_weights)


def _check_divisor() -> None:
    x = torch.full((6,), 6.0)
    if hvd.rank() != 1:
        assert hvd.allreduce(x, divisor="world").tolist() == [4.0] * 6
        assert hvd.allreduce(x).tolist() == [6.0] * 6
        assert hvd.reducescatter(x, divisor="world").tolist() == [4.0] * 2
        leaf = x.clone().requires_grad_()
        hvd.allreduce(leaf, divisor="world").sum().backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        torch.testing.assert_close(leaf.grad, torch.full((6,), 2 / 3))
    hvd.join()


def test_the_divisor_of_averages(worlds: Any) -> None:
    worlds.of(3).run(_check_divisor)


def _check_model() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2).to(torch.bfloat16))
    hvd.check_consistency(model.state_dict())
    hvd.check_consistency(model.named_parameters())
    with torch.no_grad():
        if hvd.rank() == 1:
            model[1].bias[1] += 1
    for params in (model.state_dict(), model.named_parameters()):
        with pytest.raises(MismatchError, match=r"'1\.bias' \(torch\.bfloat16 \[2\] here\) .* on rank 1 than"):
            hvd.check_consistency(params)


def test_a_model_that_has_diverged(worlds: Any) -> None:
    worlds.of(3).run(_check_model)


class _Product(torch.nn.Module):
    """Its parameter's gradient is the input."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.parameter = torch.nn.Parameter(torch.zeros(n))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return (self.parameter * inputs).sum()


def _check_division() -> None:
    """Gradients are averaged as torch would: added up in rank order, and divided."""
    import torch.distributed as dist

    import ciranda.torch.distributed as backend

    n = 3000
    x = [torch.randn(n, generator=torch.Generator().manual_seed(rank)) for rank in range(3)]
    mine, mean = x[hvd.rank()], (x[0] + x[1] + x[2]) / 3
    assert not torch.equal(mean, (x[0] + x[1] + x[2]) * (1 / 3))
    assert torch.equal(hvd.allreduce(mine), mean)
    assert torch.equal(hvd.allgather(hvd.reducescatter(mine)), mean)
    sparse = hvd.sparse_allreduce_async(mine.to_sparse(), "sparse", hvd.Average)
    assert torch.equal(hvd.synchronize(sparse).to_dense(), mean)
    for options in ({}, {"gradient_as_bucket_view": True}, {"gradient_predivide_factor": 2.0}):
        model = _Product(n)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters(), **options
        )
        for step in range(3):
            optimizer.zero_grad()
            model(mine).backward()
            optimizer.synchronize()
            assert torch.equal(model.parameter.grad, mean), (options, step)
    dist.init_process_group("ciranda")
    try:
        averaged = mine.clone()
        dist.all_reduce(averaged, dist.ReduceOp.AVG)
        assert torch.equal(averaged, mean)
        part = torch.empty(n // 3)
        dist.reduce_scatter_tensor(part, mine.clone(), dist.ReduceOp.AVG)
        assert torch.equal(part, mean.chunk(3)[hvd.rank()])
        rows = mine.to_sparse()
        dist.all_reduce(rows, dist.ReduceOp.AVG)
        torch.testing.assert_close(rows.to_dense(), mean)  # what coalesce() adds up has no order
        for value, dtype in (
            (2**62, torch.int64),
            (-(2**62), torch.int64),
            (2048.0 if mine is x[0] else 1.0, torch.half),
        ):
            few = torch.full((4,), value, dtype=dtype).to_sparse()
            dist.all_reduce(few, dist.ReduceOp.AVG)
            wanted = torch.tensor(2050 / 3).half().item() if dtype == torch.half else value
            assert few.to_dense().tolist() == [wanted] * 4, dtype
        ddp = torch.nn.parallel.DistributedDataParallel(_Product(n))
        ddp.register_comm_hook(None, backend.ddp_comm_hook)
        for _ in range(3):
            ddp.zero_grad()
            ddp(mine).backward()
            assert torch.equal(ddp.module.parameter.grad, mean)
    finally:
        dist.destroy_process_group()


def test_averages_are_divided(worlds: Any) -> None:
    worlds.of(3).run(_check_division)
