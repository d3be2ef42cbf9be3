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
def test_like_models_in_one_process(worlds: Any, n_ranks: int, make: str, use_engine: bool) -> None:
    """In fp64, to 1e-9 of the norm."""
    if use_engine and not _engine_has_adasum():
        pytest.skip("the engine has no Adasum yet")
    results = worlds.of(n_ranks).run(_on_a_rank, make, use_engine, {})
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


# --- what ranks must do alike, although each has its own gradients ---

SCALE = 1024.0


def _thaw_on(model: Model, who: list[int], step: int) -> None:
    if hvd.rank() in who:
        model[0].requires_grad_(step >= 2)


def _train_thawed(who: list[int]) -> tuple[torch.Tensor, bool]:
    model = _double()
    model[0].requires_grad_(False)
    before = flat(model[0])
    inner = MAKERS["SGD"](model.parameters())
    distributed = hvd.DistributedOptimizer(inner, model.named_parameters(), op=hvd.Adasum)
    for step in range(STEPS):
        _thaw_on(model, who, step)
        distributed.zero_grad()
        loss_of(model, step, Share(hvd.rank(), hvd.size())).backward()
        distributed.step()
    return flat(model), not torch.equal(flat(model[0]), before)


@pytest.mark.parametrize("who", [[0, 1, 2], [1]], ids=["all", "one rank"])
def test_parameters_thawed_after_wrapping(worlds: Any, who: list[int]) -> None:
    """Their changes are combined as soon as any rank trains them."""
    results = worlds.of(3).run(_train_thawed, who)
    for trained, has_changed in results:
        assert has_changed
        assert torch.equal(trained, results[0][0]), "the ranks have come apart"


def _frozen_differently() -> str:
    model = _double()
    model[0].weight.requires_grad_(hvd.rank() == 0)
    optimizer = hvd.DistributedOptimizer(MAKERS["SGD"](model.parameters()), model.named_parameters(), op=hvd.Adasum)
    loss_of(model, 0).backward()
    with pytest.raises(hvd.errors.MismatchError) as caught:
        optimizer.step()
    return str(caught.value)


def test_parameters_frozen_on_one_rank_before_wrapping(worlds: Any) -> None:
    for rank, message in enumerate(worlds.of(2).run(_frozen_differently)):
        assert f"on rank {rank} parameter '0.weight' is not in the same group as on other ranks" in message


SCALED = {
    **MAKERS,
    "fused Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, fused=True),
}


def _scaled_step(model: Model, optimizer: Any, scaler: Any, step: int, share: Share) -> None:
    """Steps 1 and 2 overflow on the last rank alone. The second is clipped, as are those after it."""
    optimizer.zero_grad()
    loss = loss_of(model, step, share)
    if step in (1, 2) and share.part == share.parts - 1:
        loss = loss * torch.inf
    scaler.scale(loss).backward()
    if step >= 2:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    scaler.step(optimizer)
    scaler.update()


def _train_scaled(make: str) -> tuple[torch.Tensor, float]:
    model = mlp()
    optimizer = hvd.DistributedOptimizer(SCALED[make](model.parameters()), model.named_parameters(), op=hvd.Adasum)
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
    for step in range(STEPS + 2):
        _scaled_step(model, optimizer, scaler, step, Share(hvd.rank(), hvd.size()))
    assert not {"grad_scale", "found_inf"} & set(vars(optimizer))
    return flat(model), scaler.get_scale()


def _scaled_in_one_process(make: str, n_ranks: int) -> torch.Tensor:
    """Without a scaler: the steps that overflow are left out."""
    models = [mlp() for _ in range(n_ranks)]
    optimizers = [SCALED[make](model.parameters()) for model in models]
    for step in (0, *range(3, STEPS + 2)):
        before = [parameter.detach().clone() for parameter in models[0].parameters()]
        for rank, (model, one) in enumerate(zip(models, optimizers, strict=True)):
            one.zero_grad()
            loss_of(model, step, Share(rank, n_ranks)).backward()
            if step:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            one.step()
        for start, *replicas in zip(before, *(model.parameters() for model in models), strict=True):
            changes = [(replica.detach() - start).double() for replica in replicas]
            for replica in replicas:
                replica.data.copy_(start + combined(changes))
    return flat(models[0])


@pytest.mark.parametrize("make", sorted(SCALED))
def test_an_overflow_on_one_rank(worlds: Any, make: str) -> None:
    """All ranks skip the step; only the scale of the one backs off, as its gradients are its own."""
    results = worlds.of(2).run(_train_scaled, make)
    assert [scale for _, scale in results] == [SCALE, SCALE / 4]
    assert_same([trained for trained, _ in results], _scaled_in_one_process(make, 2), 1e-5)


# --- backward passes that are too many, or that no step follows


def _wrong_numbers_of_passes() -> None:
    model = _double()
    optimizer = hvd.DistributedOptimizer(
        MAKERS["SGD"](model.parameters()), model.named_parameters(), op=hvd.Adasum, backward_passes_per_step=2
    )
    for _ in range(3):
        loss_of(model, 0).backward()
        optimizer.zero_grad()  # after one of two passes, nothing is lost but what is cleared
        for number in range(2):
            loss_of(model, number).backward()
        with pytest.raises(AssertionError, match=r"zero_grad\(\) was called between backward\(\) and step\(\)"):
            optimizer.zero_grad()
        with pytest.raises(AssertionError, match=r"\.weight was computed more than 2 times|bias was computed more"):
            loss_of(model, 2).backward()
        optimizer.synchronize()  # a batch that all ranks leave out
        optimizer.zero_grad()
        for number in range(2):
            loss_of(model, number).backward()
        optimizer.step()
        optimizer.zero_grad()
    optimizer.set_backward_passes_per_step(1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, 3)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    for _ in range(2):
        optimizer.step(closure)
    optimizer.zero_grad()
    loss_of(model, 0).backward()
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.zero_grad()


def test_wrong_numbers_of_passes(worlds: Any) -> None:
    worlds.of(2).run(_wrong_numbers_of_passes)
