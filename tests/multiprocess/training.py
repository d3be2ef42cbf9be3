"""Training for tests: the same steps made by one process on whole batches, and by n ranks on their shares of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

import ciranda.torch as hvd

STEPS = 5
BATCH = 24  # divides by 2, 3 and 4

Model = torch.nn.Module
Optimizer = torch.optim.Optimizer


@dataclass(frozen=True)
class Share:
    """Which part of each batch a process takes."""

    part: int = 0
    parts: int = 1


WHOLE = Share()


def mlp(dtype: torch.dtype = torch.float32) -> Model:
    torch.manual_seed(3)
    layers = [torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16, bias=False), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(16, 4)).to(dtype)


def loss_of(model: Model, batch: int, share: Share = WHOLE) -> torch.Tensor:
    """The mean over this share of batch number `batch`: the mean over ranks is the mean over the batch."""
    dtype = next(model.parameters()).dtype
    generator = torch.Generator().manual_seed(batch)
    inputs = torch.randn(BATCH, 6, generator=generator).to(dtype)
    targets = torch.randn(BATCH, 4, generator=generator).to(dtype)
    mine = slice(share.part, None, share.parts)
    return torch.nn.functional.mse_loss(model(inputs[mine]), targets[mine])


def flat(model: Model) -> torch.Tensor:
    return torch.cat([parameter.detach().double().flatten() for parameter in model.parameters()])


@dataclass
class Training:
    """What to train, and how: everything but who does it."""

    make: Callable[[Any], Optimizer]
    model: Callable[[], Model] = mlp
    passes: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    #: Makes one step, in place of the usual one: step(model, optimizer, number, share, is_distributed).
    step: Callable[[Model, Any, int, Share, bool], None] | None = None
    steps: int = STEPS

    def _make_step(self, model: Model, optimizer: Any, number: int, share: Share, is_distributed: bool) -> None:
        if self.step is not None:
            self.step(model, optimizer, number, share, is_distributed)
            return
        optimizer.zero_grad()
        for i in range(self.passes):
            loss_of(model, number * self.passes + i, share).backward()
        optimizer.step()

    def alone(self) -> torch.Tensor:
        """The parameters after training in one process, with the plain optimizer."""
        model = self.model()
        optimizer = self.make(model.parameters())
        for number in range(self.steps):
            self._make_step(model, optimizer, number, WHOLE, False)
        return flat(model)

    def distributed(self) -> torch.Tensor:
        """The parameters after training as one of the ranks."""
        model = self.model()
        optimizer = hvd.DistributedOptimizer(
            self.make(model.parameters()),
            named_parameters=model.named_parameters(),
            backward_passes_per_step=self.passes,
            **self.options,
        )
        share = Share(hvd.rank(), hvd.size())
        for number in range(self.steps):
            self._make_step(model, optimizer, number, share, True)
        return flat(model)


def assert_same(results: list[torch.Tensor], expected: torch.Tensor, tolerance: float) -> None:
    """All ranks have the same bits, and differ from `expected` by at most `tolerance`, relative to its norm."""
    for result in results:
        assert torch.equal(result, results[0]), "the ranks have come apart"
    difference = float((results[0] - expected).norm() / expected.norm())
    assert difference <= tolerance, f"off by {difference:.2e}, relative to the norm; allowed: {tolerance:.0e}"
