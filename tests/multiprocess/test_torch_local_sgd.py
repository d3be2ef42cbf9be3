"""LocalSGD: n ranks must do what n models in one process do, whose parameters are averaged every k steps."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from training import Model, Share, assert_same, flat, loss_of, mlp

import ciranda.torch as hvd

pytestmark = pytest.mark.multiprocess

STEPS = 7
SIZES = [2, 3]
MAKERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "Momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
}
#: (optimizer, k, whether its state is averaged): each on worlds of some size.
CASES = [("SGD", 1, False), ("SGD", 3, False), ("Momentum", 2, False), ("Momentum", 2, True), ("Adam", 3, True)]


def _double() -> Model:
    return mlp(torch.float64)


def _in_one_process(make: str, k: int, with_state: bool, n_ranks: int) -> torch.Tensor:
    models = [_double() for _ in range(n_ranks)]
    optimizers = [MAKERS[make](model.parameters()) for model in models]
    for step in range(STEPS):
        for rank, (model, one) in enumerate(zip(models, optimizers, strict=True)):
            one.zero_grad()
            loss_of(model, step, Share(rank, n_ranks)).backward()
            one.step()
        if (step + 1) % k == 0 or step == STEPS - 1:
            _average([list(model.parameters()) for model in models])
            if with_state:
                _average([_momenta(one) for one in optimizers])
    return flat(models[0])


def _momenta(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [value for state in optimizer.state.values() for value in state.values() if value.ndim]


def _average(replicas: list[list[torch.Tensor]]) -> None:
    for alike in zip(*replicas, strict=True):
        mean = torch.stack([each.detach() for each in alike]).mean(0)
        for each in alike:
            each.data.copy_(mean)


def _step(model: Model, optimizer: Any, step: int) -> torch.Tensor:
    optimizer.zero_grad()
    loss = loss_of(model, step, Share(hvd.rank(), hvd.size()))
    loss.backward()
    optimizer.step()
    return loss.detach()


def _on_a_rank(make: str, k: int, with_state: bool) -> torch.Tensor:
    model = _double()
    inner = MAKERS[make](model.parameters())
    optimizer = hvd.LocalSGD(inner, model.named_parameters(), k=k, average_state=with_state)
    assert isinstance(optimizer, type(inner))
    for step in range(STEPS):
        _step(model, optimizer, step)
        if step < k:
            everyones = hvd.allgather(flat(model)[None])
            assert bool((everyones == everyones[0]).all()) is (step + 1 == k)
    optimizer.average()
    return flat(model)


@pytest.mark.parametrize("n_ranks", SIZES)
def test_like_models_in_one_process(worlds: Any, n_ranks: int) -> None:
    """In fp64, to 1e-12 of the norm."""
    results = worlds.of(n_ranks).run(lambda: [_on_a_rank(*case) for case in CASES])
    for number, case in enumerate(CASES):
        assert_same([result[number] for result in results], _in_one_process(*case, n_ranks), 1e-12)


def test_every_step_is_training_on_the_whole_batch(worlds: Any) -> None:
    """k=1 with plain SGD: the mean of the parameters is the parameter that the mean of the gradients gives."""
    results = worlds.of(3).run(_on_a_rank, "SGD", 1, False)
    model = _double()
    optimizer = MAKERS["SGD"](model.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
    assert_same(results, flat(model), 1e-12)


# --- what is left alone ---


def _marked(by: str) -> tuple[list[float], bool]:
    model = _double()
    model.requires_grad_(True)
    own = model[0].weight
    listed: dict[str, Any] = {"name": {"distributed": ["0.weight"]}, "tensor": {"distributed": [own]}, "mark": {}}
    if by == "mark":
        own.is_distributed = True
    own.data += hvd.rank()
    optimizer = hvd.LocalSGD(MAKERS["Momentum"](model.parameters()), model.named_parameters(), k=1, **listed[by])
    twin = _double()
    twin.load_state_dict(model.state_dict())
    alone = MAKERS["Momentum"](twin.parameters())
    loss_of(model, 0).backward(), loss_of(twin, 0).backward()
    optimizer.step(), alone.step()
    others = torch.cat([each.detach().flatten() for each in model.parameters() if each is not own])
    return others.tolist(), torch.equal(own, twin[0].weight)


def test_distributed_parameters_are_left_alone(worlds: Any) -> None:
    for by in ("name", "tensor", "mark"):
        found = worlds.of(2).run(_marked, by)
        assert found[0][0] == found[1][0]
        assert all(is_own for _, is_own in found)


def _marked_gradients() -> tuple[bool, ...]:
    rank = hvd.rank()
    own, shared = (torch.nn.Parameter(torch.full((2 + rank if own else 2,), float(rank))) for own in (True, False))
    own.is_distributed = True  # type: ignore[assignment, method-assign]
    named = [("own", own), ("shared", shared)]
    hvd.broadcast_parameters(named, 1)
    hvd.check_consistency(named)
    is_kept = bool((own == rank).all() and (shared == 1).all())
    inner = torch.optim.SGD([own, shared], lr=1.0, momentum=0.5)
    optimizer = hvd.DistributedOptimizer(inner, named)
    for _ in range(2):
        optimizer.zero_grad()
        (own.sum() * (rank + 1) + shared.sum() * (rank + 1)).backward()
        optimizer.step()
    factor = 1 + 1.5
    is_stepped = torch.allclose(own, rank - factor * (rank + 1) * torch.ones_like(own))
    is_averaged = torch.allclose(shared, 1 - factor * 1.5 * torch.ones(2))
    before = optimizer.state[own]["momentum_buffer"].clone()
    optimizer.state[shared]["momentum_buffer"] += rank
    hvd.broadcast_optimizer_state(optimizer, 0)
    is_state_kept = torch.equal(optimizer.state[own]["momentum_buffer"], before)
    is_state_sent = bool((optimizer.state[shared]["momentum_buffer"] == factor - 0.25).all())
    return is_kept, is_stepped, is_averaged, is_state_kept, is_state_sent


def test_distributed_gradients_stay_with_their_rank(worlds: Any) -> None:
    """Through broadcast_parameters, check_consistency, DistributedOptimizer and broadcast_optimizer_state."""
    assert worlds.of(2).run(_marked_gradients) == [(True,) * 5] * 2


# --- adaptive k ---


def _adaptive(rates: list[float], with_closure: bool) -> list[tuple[int, float]]:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = hvd.LocalSGD(torch.optim.SGD([weight], lr=1.0), [("w", weight)], k=4, adaptive=True, max_k=8)
    seen = []
    for number, rate in enumerate(rates):
        optimizer.param_groups[0]["lr"] = rate * (1 + hvd.rank())  # the mean counts
        for _ in range(optimizer.k):
            weight.grad = torch.ones(1)
            loss = 16.0 / (number + 1) + hvd.rank()
            if with_closure:
                optimizer.step(lambda loss=loss: loss)
            else:
                optimizer.report_loss(loss)
                optimizer.step()
        seen.append(optimizer.k)
    return seen


@pytest.mark.parametrize("with_closure", [False, True], ids=["reported", "closure"])
def test_adaptive_interval(worlds: Any, with_closure: bool) -> None:
    rates = [1.0, 1.0, 1.0, 0.1, 0.01, 4.0]
    losses = [16.0 / (number + 1) + 0.5 for number in range(len(rates))]
    expected = [
        max(1, min(8, math.ceil(4 * math.sqrt(loss / losses[0] * (rates[0] / rate)))))
        for loss, rate in zip(losses, rates, strict=True)
    ]
    assert len(set(expected)) > 3
    assert worlds.of(2).run(_adaptive, rates, with_closure) == [expected] * 2


# --- different numbers of steps, GradScaler, copies ---


def _uneven() -> list[float]:
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = hvd.LocalSGD(torch.optim.SGD([weight], lr=1.0), k=3)
    for _ in range(1 + hvd.rank()):
        weight.grad = torch.ones(2)
        optimizer.step()
    optimizer.average()
    first = weight.tolist()
    for _ in range(3 * (1 + hvd.rank())):  # rank 0 averages once, rank 1 twice
        weight.grad = torch.ones(2)
        optimizer.step()
    hvd.join()
    return [*first, *weight.tolist()]


def test_ranks_with_different_numbers_of_steps(worlds: Any) -> None:
    assert worlds.of(2).run(_uneven) == [[-1.5, -1.5, -4.5, -4.5], [-1.5, -1.5, -7.5, -7.5]]


def _scaled() -> list[float]:
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = hvd.LocalSGD(torch.optim.SGD([weight], lr=1.0), k=2)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for step in range(4):
        optimizer.zero_grad()
        bad = math.inf if step == 1 and hvd.rank() == 1 else 1.0
        scaler.scale((weight * bad).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    return weight.tolist()


def test_a_rank_that_grad_scaler_lets_skip_a_step_stays_in_time(worlds: Any) -> None:
    assert worlds.of(2).run(_scaled) == [[-3.5, -3.5]] * 2


def _copied() -> bool:
    model = _double()
    optimizer = hvd.LocalSGD(MAKERS["Momentum"](model.parameters()), model.named_parameters(), k=2)
    _step(model, optimizer, 0), _step(model, optimizer, 1)
    same = []
    for copied, its in (copy.deepcopy((model, optimizer)), pickle.loads(pickle.dumps((model, optimizer)))):
        assert its.k == 2
        for step in range(2):
            _step(copied, its, step)
        same.append(flat(copied))
    return torch.equal(*same)


def test_copies_go_on(worlds: Any) -> None:
    assert all(worlds.of(2).run(_copied))


# --- what is wrong ---


def _with_other_parameters() -> None:
    model = _double()
    model[0].weight.data += hvd.rank()
    _step(model, hvd.LocalSGD(MAKERS["SGD"](model.parameters()), model.named_parameters()), 0)


def _with_other_k() -> None:
    model = _double()
    optimizer = hvd.LocalSGD(MAKERS["SGD"](model.parameters()), model.named_parameters(), k=1 + hvd.rank())
    for step in range(2):
        _step(model, optimizer, step)


def _with_other_reasons() -> None:
    model = _double()
    optimizer = hvd.LocalSGD(MAKERS["SGD"](model.parameters()), model.named_parameters(), k=2)
    _step(model, optimizer, 0)
    _step(model, optimizer, 1) if hvd.rank() else optimizer.average()


def _with_other_parameters_frozen() -> None:
    model = _double()
    optimizer = hvd.LocalSGD(MAKERS["SGD"](model.parameters()), model.named_parameters(), k=2)
    _step(model, optimizer, 0)
    model[0].weight.requires_grad_(hvd.rank() == 0)
    _step(model, optimizer, 1)


def _with_other_state() -> None:
    pair = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
    optimizer = hvd.LocalSGD(MAKERS["Adam"](pair), k=1, average_state=True)
    sum(each.sum() for each in pair[: 1 + hvd.rank()]).backward()  # type: ignore[union-attr]
    optimizer.step()


def _without_a_loss() -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = hvd.LocalSGD(torch.optim.SGD([weight], lr=1.0), k=1, adaptive=True)
    optimizer.step()


@pytest.mark.parametrize(
    ("wrong", "kind", "text"),
    [
        (_with_other_parameters, "MismatchError", "do not begin with the same parameters; call broadcast_parameters"),
        (_with_other_k, "MismatchError", "others every 1 steps or every 2 steps: give the same k"),
        (_with_other_reasons, "MismatchError", "because average() was called or every 2 steps"),
        (_with_other_parameters_frozen, "MismatchError", "4 to 5): freeze the same parameters"),
        (_with_other_state, "MismatchError", "4 to 6): freeze"),
        (_without_a_loss, "InvalidArgumentError", "has heard of no loss"),
    ],
)
def test_what_ranks_do_differently_is_said_on_all(worlds: Any, wrong: Callable[[], None], kind: str, text: str) -> None:
    for error in worlds.of(2).errors(wrong):
        assert type(error).__name__ == kind
        assert text in str(error)


def test_arguments_that_cannot_be() -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    inner = torch.optim.SGD([weight], lr=1.0)
    wrong: list[dict[str, Any]] = [
        {"k": 0},
        {"k": -1},
        {"k": 2.5},
        {"k": 20, "adaptive": True},
        {"distributed": ["nothing"]},
        {"distributed": [torch.zeros(1)]},
        {"named_parameters": []},
    ]
    texts = []
    for arguments in wrong:
        with pytest.raises(ValueError, match=" ") as raised:
            hvd.LocalSGD(inner, **{"named_parameters": [("w", weight)], **arguments})
        texts.append(str(raised.value))
    for wrapped in (hvd.LocalSGD(inner), hvd.DistributedOptimizer(inner)):
        with pytest.raises(ValueError, match="distributed already"):
            hvd.LocalSGD(wrapped)
    expected = [
        "from 1; got 0",
        "got -1",
        "got 2.5",
        "max_k=16 is less than k=20",
        "'nothing' is listed as",
        "a Tensor is",
    ]
    for text, part in itertools.zip_longest(texts, expected, fillvalue="not named"):
        assert part in text
