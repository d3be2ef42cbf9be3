"""Training that is resumed from a checkpoint of rank 0 goes on as if it had not stopped, bit for bit."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from training import Model, Share, flat, loss_of, mlp

import ciranda.torch as hvd

pytestmark = pytest.mark.multiprocess

MAKERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "SGD without state": lambda p: torch.optim.SGD(p, lr=0.1),
    "Adam": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01), amsgrad=True),
    "Adafactor": lambda p: torch.optim.Adafactor(p),  # noqa: PLW0108 (travels by value)
    "LBFGS": lambda p: torch.optim.LBFGS(p, lr=0.5, max_iter=3, history_size=4),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "Rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
}


class _Job:
    """A model, its optimizer and its schedule, as a script makes them."""

    def __init__(self, make: str) -> None:
        self.model: Model = mlp()
        self.optimizer = hvd.DistributedOptimizer(
            MAKERS[make](self.model.parameters()), named_parameters=self.model.named_parameters()
        )
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, gamma=0.5)

    def train(self, steps: range) -> None:
        for number in steps:

            def closure(number: int = number) -> torch.Tensor:
                self.optimizer.zero_grad()
                loss = loss_of(self.model, number, Share(hvd.rank(), hvd.size()))
                loss.backward()
                return loss

            self.optimizer.step(closure)
            self.scheduler.step()

    def save(self) -> bytes:
        file = io.BytesIO()
        parts = {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}
        torch.save({name: part.state_dict() for name, part in parts.items()}, file)
        return file.getvalue()

    def load(self, data: bytes) -> None:
        for name, state in torch.load(io.BytesIO(data), weights_only=True).items():
            getattr(self, name).load_state_dict(state)


def _first_half(make: str) -> tuple[bytes, torch.Tensor]:
    """The checkpoint after three steps, and where six steps lead."""
    job = _Job(make)
    job.train(range(3))
    data = job.save()
    job.train(range(3, 6))
    return data, flat(job.model)


def _second_half(make: str, data: bytes | None) -> torch.Tensor:
    job = _Job(make)
    for parameter in job.model.parameters():
        parameter.data.add_(hvd.rank())
    if data is not None:
        job.load(data)
    hvd.broadcast_parameters(job.model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(job.optimizer, root_rank=0)
    job.scheduler.load_state_dict(hvd.broadcast_object(job.scheduler.state_dict(), root_rank=0))
    job.train(range(3, 6))
    return flat(job.model)


@pytest.mark.parametrize("n_ranks", [2, 3, 4])
@pytest.mark.parametrize("make", sorted(MAKERS))
def test_resuming(worlds: Any, n_ranks: int, make: str) -> None:
    world = worlds.of(n_ranks)
    halves = world.run(_first_half, make)
    for rank in range(n_ranks):
        world.start(rank, _second_half, make, halves[0][0] if rank == 0 else None)
    outcomes = [world.outcome(rank) for rank in range(n_ranks)]
    assert not any(outcome.traceback for outcome in outcomes), outcomes
    for outcome in outcomes:
        assert torch.equal(outcome.value, halves[0][1])


class _Wide(torch.optim.Optimizer):
    """Keeps its sums in float32 though the parameters are bfloat16, and what is not a tensor in its state."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1, "betas": (0.9, 0.5), "kind": "wide"})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                state["sum"] = state.get("sum", 0) + parameter.grad.float() / 3
                state["count"] = state.get("count", 0) + 1
                state["history"] = [*state.get("history", []), parameter.grad.float().norm()]
                parameter.sub_((state["sum"] * group["lr"]).to(parameter.dtype))


def _states(root: int) -> dict[str, Any]:
    model = mlp(torch.bfloat16)
    optimizer = _Wide(model.parameters())
    if hvd.rank() == root:
        for group in optimizer.param_groups:
            group["lr"] = 0.25
        for number in range(2):
            loss_of(model, number).backward()
            optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, root)
    return optimizer.state_dict()


@pytest.mark.parametrize("n_ranks", [2, 3])
def test_state_of_other_types_than_the_parameters(worlds: Any, n_ranks: int) -> None:
    root = n_ranks - 1
    states = worlds.of(n_ranks).run(_states, root)
    assert states[root]["state"][0]["sum"].dtype == torch.float32
    assert states[0]["param_groups"][0]["lr"] == 0.25
    for state in states:
        assert state["param_groups"] == states[root]["param_groups"]
        for mine, roots in zip(state["state"].values(), states[root]["state"].values(), strict=True):
            assert mine["sum"].dtype == torch.float32
            assert torch.equal(mine["sum"], roots["sum"])
            assert mine["count"] == roots["count"] == 2
            assert mine["history"] == roots["history"]


def _rate_that_is_a_tensor() -> list[Any]:
    mine = torch.tensor(0.1 * (hvd.rank() + 1))
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=mine, capturable=False, foreach=False)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return [optimizer.param_groups[0]["lr"] is mine, mine.item()]


def test_a_rate_that_is_a_tensor_stays_the_one_that_others_hold(worlds: Any) -> None:
    """A scheduler changes it in place."""
    assert worlds.of(2).run(_rate_that_is_a_tensor) == [[True, torch.tensor(0.1).item()]] * 2


def _sparse_momentum() -> list[Any]:
    embedding = torch.nn.Embedding(5, 2, sparse=True)
    optimizer = torch.optim.SGD(embedding.parameters(), lr=0.1, momentum=0.9)
    if hvd.rank() == 0:
        embedding(torch.tensor([3, 1, 3])).sum().backward()
        optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    momentum = optimizer.state_dict()["state"][0]["momentum_buffer"]
    return [momentum.is_sparse, momentum.to_dense().tolist()]


def test_sparse_momentum(worlds: Any) -> None:
    of_root, received = worlds.of(2).run(_sparse_momentum)
    assert received == of_root == [True, [[0, 0], [1, 1], [0, 0], [2, 2], [0, 0]]]


def _foreign_state(root: int) -> None:
    model = mlp() if hvd.rank() == root else torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hvd.broadcast_optimizer_state(optimizer, root)


def test_optimizers_of_different_parameters_are_refused(worlds: Any) -> None:
    outcomes = worlds.of(2).outcomes(_foreign_state, 0)
    assert isinstance(outcomes[1].error, ValueError)
