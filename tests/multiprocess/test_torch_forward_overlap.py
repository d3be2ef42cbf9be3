"""DistributedOptimizer(overlap_forward=model): the same training, bit for bit, with updates right before their use."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from ranks import Ranks

pytest.importorskip("torch")

import torch
from torch import nn

import ciranda
import ciranda.torch as hvd
from ciranda import _core
from ciranda.errors import RanksLostError
from ciranda.torch import overlapping_optimizer

pytestmark = pytest.mark.multiprocess

STEPS = 5


class Tied(nn.Module):
    """The first layer's weight is the last one's, and there are parameters beside those of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.ones(8))
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 8)) for _ in range(3)])
        self.last = nn.Linear(8, 8)
        self.last.weight = self.first.weight

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.first(inputs) * self.scale
        for layer in self.layers:
            hidden = hidden + layer(hidden)
        return self.last(hidden)


class Attending(nn.Module):
    """Attention reads the parameters of the layer that it ends with, and does not call it."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.layers(inputs.unsqueeze(1))
        return hidden.squeeze(1)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "sequential": lambda: nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 8)),
    "tied": Tied,
    "attention": Attending,
}
MAKERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
}


def _loss(model: nn.Module, number: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * number + hvd.rank())
    return (model(torch.randn(4, 8, generator=generator)) - 1).square().mean()


def _flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([value.flatten() for value in model.state_dict().values()])


@dataclass(frozen=True)
class Training:
    model: str = "sequential"
    optimizer: str = "SGD"
    groups: int | None = 1000  # each parameter alone
    set_to_none: bool = True
    zeroes: str = "before"  # the forward pass, or "after" it, or "never"
    has_buckets: bool = False


def _make(training: Training, overlaps: bool) -> tuple[nn.Module, Any]:
    torch.manual_seed(5)
    model = MODELS[training.model]()
    optimizer = hvd.DistributedOptimizer(
        MAKERS[training.optimizer](model.parameters()),
        named_parameters=((f"{overlaps}.{name}", parameter) for name, parameter in model.named_parameters()),
        groups=training.groups,
        gradient_as_bucket_view=training.has_buckets,
        overlap_forward=model if overlaps else None,
    )
    return model, optimizer


def _train(training: Training, overlaps: bool) -> tuple[torch.Tensor, int]:
    """What comes out, and how many steps were left to the next forward pass."""
    model, optimizer = _make(training, overlaps)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)
    n_left = 0
    for number in range(STEPS):
        if training.zeroes == "before":
            optimizer.zero_grad(training.set_to_none)
        loss = _loss(model, number)
        if training.zeroes == "after":
            optimizer.zero_grad(training.set_to_none)
        loss.backward()
        optimizer.step()
        n_left += overlaps and bool(optimizer._pending)
        scheduler.step()
    return _flat(model), n_left


@pytest.mark.parametrize("n_ranks", [2, 3])
@pytest.mark.parametrize(
    "training",
    [
        *(Training(model, optimizer) for model in MODELS for optimizer in MAKERS),
        Training("tied", groups=None),
        Training("tied", set_to_none=False),
        Training(zeroes="after"),
        Training(zeroes="never"),
        Training("attention", groups=2, has_buckets=True),
    ],
    ids=str,
)
def test_the_same_bits(worlds: Any, n_ranks: int, training: Training) -> None:
    expected = worlds.of(n_ranks).run(_train, training, False)[0][0]
    for result, n_left in worlds.of(n_ranks).run(_train, training, True):
        assert torch.equal(result, expected)
        assert n_left == STEPS


def _read_in_between() -> list[bool]:
    """Whoever looks after a step finds it made."""
    training = Training()
    looks: list[Callable[[nn.Module, Any], object]] = [
        lambda model, optimizer: model.state_dict(),
        lambda model, optimizer: copy.deepcopy(optimizer.state_dict()),
        lambda model, optimizer: optimizer.synchronize(),
        lambda model, optimizer: _without_gradients(model),
    ]
    equal = []
    for look in looks:
        model, optimizer = _make(training, True)
        reference, alike = _make(training, False)
        for number in range(3):
            for each, its in ((model, optimizer), (reference, alike)):
                its.zero_grad()
                _loss(each, number).backward()
                its.step()
        assert optimizer._pending
        look(model, optimizer)
        pairs = zip(model.parameters(), reference.parameters(), strict=True)
        equal.append(not optimizer._pending and all(torch.equal(a, b) for a, b in pairs))
    return equal


def _without_gradients(model: nn.Module) -> None:
    with torch.no_grad():
        model[0](torch.ones(1, 8))


def test_readers_find_the_step_made(worlds: Any) -> None:
    assert worlds.of(2).run(_read_in_between) == [[True] * 4] * 2


def _load_after_a_step(is_lost: bool) -> bool:
    """A checkpoint that is loaded after a step has no update on top, and none where the gradients are lost."""
    model, optimizer = _make(Training(), True)
    saved = copy.deepcopy(model.state_dict())
    for number in range(2):
        optimizer.zero_grad()
        _loss(model, number).backward()
        optimizer.step()
    assert optimizer._pending
    if is_lost:
        for group in optimizer._groups:
            group.operation = _Lost()
    model.load_state_dict(saved)
    optimizer.load_state_dict(optimizer.state_dict())
    model(torch.ones(1, 8))
    return not optimizer._pending and all(torch.equal(p, saved[name]) for name, p in model.named_parameters())


class _Lost:
    """What is left of an operation whose world has broken."""

    def wait(self) -> None:
        raise RanksLostError("rank 1 is gone")


def _wait_all(operations: list[Any]) -> None:
    for operation in operations:
        operation.wait()


def _load_after_a_loss() -> bool:
    overlapping_optimizer._core = SimpleNamespace(wait_all=_wait_all)
    try:
        return _load_after_a_step(True)
    finally:
        overlapping_optimizer._core = _core


def test_a_checkpoint_is_loaded_as_it_is(worlds: Any) -> None:
    assert worlds.of(2).run(_load_after_a_step, False) == [True] * 2
    with Ranks(2, with_torch=True) as ranks:
        assert ranks.run(_load_after_a_loss) == [True] * 2


class Sly(nn.Module):
    """From its second forward pass on it reads a layer's weight without calling the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.honest = nn.Linear(8, 8)
        self.layer = nn.Linear(8, 8, bias=False)
        self.is_sly = False

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.honest(inputs)
        return hidden @ self.layer.weight if self.is_sly else self.layer(hidden)


def _read_slyly() -> str:
    model = Sly()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), groups=9, overlap_forward=model
    )
    for number in range(3):
        optimizer.zero_grad()
        try:
            _loss(model, number).backward()
        except AssertionError as error:
            return str(error)
        optimizer.step()
        model.is_sly = True
    return "nothing was noticed"


def test_a_parameter_that_is_read_before_its_update_is_an_error(worlds: Any) -> None:
    for message in worlds.of(2).run(_read_slyly):
        assert "DistributedOptimizer.layer.weight was computed before the parameter was updated" in message
        assert "Call synchronize() before" in message


class Skipping(nn.ModuleList):
    """Leaves out one layer, if it is told to."""

    skipped = -1

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for index, layer in enumerate(self):
            if index != self.skipped:
                hidden = layer(hidden)
        return hidden


def _some_without_gradient(overlaps: bool) -> torch.Tensor:
    """In every second step each rank leaves out another layer: such steps are made at once."""
    torch.manual_seed(0)
    model = Skipping(nn.Linear(8, 8) for _ in range(3))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        named_parameters=((f"{overlaps}.{name}", p) for name, p in model.named_parameters()),
        overlap_forward=model if overlaps else None,
    )
    for number in range(4):
        optimizer.zero_grad()
        model.skipped = hvd.rank() if number % 2 else -1
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        if overlaps:
            assert bool(optimizer._pending) == (number % 2 == 0)
    return _flat(model)


@pytest.mark.filterwarnings("ignore:parameters got a gradient on other ranks")
def test_missing_gradients(worlds: Any) -> None:
    expected = worlds.of(2).run(_some_without_gradient, False)[0]
    for result in worlds.of(2).run(_some_without_gradient, True):
        assert torch.equal(result, expected)


def _clip(overlaps: bool) -> torch.Tensor:
    model, optimizer = _make(Training(), overlaps)
    for number in range(4):
        optimizer.zero_grad()
        _loss(model, number).backward()
        if number % 2 == 0:
            optimizer.step()
            continue
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        with optimizer.skip_synchronize():
            optimizer.step()
    return _flat(model)


def test_clipping(worlds: Any) -> None:
    expected = worlds.of(2).run(_clip, False)[0]
    for result in worlds.of(2).run(_clip, True):
        assert torch.equal(result, expected)


def _refusals() -> list[str]:
    model = nn.Linear(1, 1)
    texts = []
    lbfgs, sgd = torch.optim.LBFGS(model.parameters()), torch.optim.SGD(model.parameters())
    for optimizer, op in ((lbfgs, hvd.Sum), (sgd, hvd.Adasum)):
        try:
            hvd.DistributedOptimizer(optimizer, model.named_parameters(), op=op, overlap_forward=model)
        except ValueError as error:
            texts.append(str(error))
    return texts


def test_what_steps_with_all_at_once_is_refused(worlds: Any) -> None:
    for texts in worlds.of(2).run(_refusals):
        assert len(texts) == 2
        assert all("overlap_forward cannot be used with op=Adasum or LBFGS" in text for text in texts)


def _with_priorities() -> bool:
    values = [torch.full((3,), float(hvd.rank() + index)) for index in range(4)]
    sums = [sum(range(hvd.size())) + index * hvd.size() for index in range(4)]
    handles = [
        hvd.allreduce_async(values[0], name="p0", op=hvd.Sum, priority=-1),
        hvd.allreduce_async_(values[1], name="p1", op=hvd.Sum, priority=7),
        hvd.grouped_allreduce_async(values[2:3], name="p2", op=hvd.Sum, priority=3),
        hvd.grouped_allreduce_async_(values[3:4], name="p3", op=hvd.Sum),
        ciranda.allreduce_async(values[0].numpy(), name="p4", op=hvd.Sum, priority=2),
    ]
    results = [handle.wait() for handle in handles]
    flat = [result[0] if isinstance(result, list) else result for result in results]
    return [value.tolist() for value in flat] == [[float(total)] * 3 for total in (*sums, sums[0])]


def test_calls_with_priorities(worlds: Any) -> None:
    assert worlds.of(3).run(_with_priorities) == [True] * 3
