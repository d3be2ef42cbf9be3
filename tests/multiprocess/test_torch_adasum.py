"""DistributedOptimizer(op=Adasum): n ranks must do what n models in one process do, whose changes are combined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from training import Model, Share, assert_same, flat, loss_of, mlp

import ciranda.torch as hvd
from ciranda.torch import adasum, optimizer

pytestmark = pytest.mark.multiprocess

STEPS = 4
MAKERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
}


def combined(changes: list[torch.Tensor]) -> torch.Tensor:
    """The definition: halves of a power of two are combined first, then the two results."""
    if len(changes) == 1:
        return changes[0]
    half = len(changes) // 2
    a, b = combined(changes[:half]), combined(changes[half:])
    dot, aa, bb = (a * b).sum(), (a * a).sum(), (b * b).sum()
    return a * (1 - dot / (2 * aa) if aa > 0 else 1.0) + b * (1 - dot / (2 * bb) if bb > 0 else 1.0)


def _combine_by_definition(_: Any, changes: list[list[torch.Tensor]]) -> list[list[torch.Tensor]]:
    return [[combined(list(hvd.allgather(change[None]).unbind())) for change in group] for group in changes]


def _double() -> Model:
    return mlp(torch.float64)


def _in_one_process(make: str, n_ranks: int) -> torch.Tensor:
    models = [_double() for _ in range(n_ranks)]
    optimizers = [MAKERS[make](model.parameters()) for model in models]
    for step in range(STEPS):
        before = [parameter.detach().clone() for parameter in models[0].parameters()]
        for rank, (model, one) in enumerate(zip(models, optimizers, strict=True)):
            one.zero_grad()
            loss_of(model, step, Share(rank, n_ranks)).backward()
            one.step()
        for start, *replicas in zip(before, *(model.parameters() for model in models), strict=True):
            result = start + combined([replica.detach() - start for replica in replicas])
            for replica in replicas:
                replica.data.copy_(result)
    return flat(models[0])


def _on_a_rank(make: str, use_engine: bool, options: dict[str, Any]) -> torch.Tensor:
    if not use_engine:
        optimizer.choose_op = lambda op, _: op
        original, adasum.AdasumOptimizer._combine = adasum.AdasumOptimizer._combine, _combine_by_definition
    model = _double()
    inner = MAKERS[make](model.parameters())
    distributed = hvd.DistributedOptimizer(inner, model.named_parameters(), op=hvd.Adasum, **options)
    assert isinstance(distributed, type(inner))
    for step in range(STEPS):
        distributed.zero_grad()
        loss_of(model, step, Share(hvd.rank(), hvd.size())).backward()
        distributed.step()
    if not use_engine:
        adasum.AdasumOptimizer._combine = original
    return flat(model)


@pytest.mark.parametrize("n_ranks", [2, 4])
@pytest.mark.parametrize("make", sorted(MAKERS))
@pytest.mark.parametrize("use_engine", [False, True], ids=["definition", "engine"])
def test_like_models_in_one_process(circles: Any, n_ranks: int, make: str, use_engine: bool) -> None:
    """In fp64, to 1e-9 of the norm."""
    if use_engine and not _engine_has_adasum():
        pytest.skip("the engine has no Adasum yet")
    results = circles.of(n_ranks).run(_on_a_rank, make, use_engine, {})
    assert_same(results, _in_one_process(make, n_ranks), 1e-9)


def _engine_has_adasum() -> bool:
    hvd.init()
    try:
        hvd.allreduce(torch.ones(1), op=hvd.Adasum)
    except hvd.errors.InvalidArgumentError:
        return False
    finally:
        hvd.shutdown()
    return True
