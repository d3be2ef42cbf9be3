"""Collectives and optimizers inside of what torch.compile has compiled do what they do outside of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import ciranda.torch as hvd

pytestmark = pytest.mark.multiprocess

Tensor = torch.Tensor


def _train(decorate: Callable[[Any], Any], **options: Any) -> list[float]:
    """A few steps of a model, whole steps decorated; the losses of all ranks, and the weights."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model.named_parameters(), **options
    )

    @decorate
    def step(batch: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        return hvd.allreduce(loss.detach())

    torch.manual_seed(1 + hvd.rank())
    losses = [step(torch.randn(3, 4)).item() for _ in range(4)]
    return losses + model.weight.flatten().tolist()


def _steps() -> None:
    compiled = torch.compile(backend="aot_eager")
    for options in ({}, {"op": hvd.Adasum}):
        assert _train(compiled, **options) == pytest.approx(_train(lambda step: step, **options), rel=1e-5)


def _calls() -> None:
    """Each call in its place between what is compiled; names, rank and size are those of the call, not of the trace."""

    @torch.compile(backend="aot_eager")
    def function(tensor: Tensor) -> Tensor:
        total = hvd.allreduce(tensor * 2, op=hvd.Sum)
        first, second = hvd.grouped_allreduce([total + 1, total], op=hvd.Sum)
        handle = hvd.broadcast_async(first * (hvd.rank() + 1), root_rank=hvd.size() - 1)
        return hvd.synchronize(handle) + second

    for number in range(3):
        tensor = torch.full((5,), float(hvd.rank() + number), requires_grad=True)
        n = hvd.size()
        total = float(sum(2 * (rank + number) for rank in range(n)))
        result = function(tensor)
        assert result.tolist() == [(total + 1) * n * n + total * n] * 5
        result.sum().backward()
        assert tensor.grad is not None


def test_whole_steps(worlds: Any) -> None:
    worlds.of(2).run(_steps)


def test_calls(worlds: Any) -> None:
    worlds.of(3).run(_calls)
