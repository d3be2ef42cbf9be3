"""Gradients of the collectives in fp64, against finite differences.

The loss of a rank depends on all ranks' inputs. The gradient is that of the sum of all ranks' losses (of their mean,
for allgather and broadcast): each element of each rank's input is moved a little, and the sum looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import ciranda.torch as hvd

pytestmark = pytest.mark.multiprocess

Function = Callable[[list[torch.Tensor]], list[torch.Tensor]]

#: Name: the function of a list of tensors, and whether its gradient is that of the mean of the losses.
FUNCTIONS: dict[str, tuple[Function, bool]] = {
    "allreduce average": (lambda x: [hvd.allreduce(t) for t in x], False),
    "allreduce sum": (lambda x: [hvd.allreduce(t, op=hvd.Sum) for t in x], False),
    "allreduce scaled": (
        lambda x: [hvd.allreduce(t, op=hvd.Sum, prescale_factor=0.5, postscale_factor=-3.0) for t in x],
        False,
    ),
    "allreduce min": (lambda x: [hvd.allreduce(t, op=hvd.Min) for t in x], False),
    "allreduce max scaled": (lambda x: [hvd.allreduce(t, op=hvd.Max, prescale_factor=-2.0) for t in x], False),
    "grouped average": (hvd.grouped_allreduce, False),
    "grouped sum": (lambda x: hvd.grouped_allreduce(x, op=hvd.Sum, postscale_factor=0.25), False),
    "grouped max": (lambda x: hvd.grouped_allreduce(x, op=hvd.Max), False),
    "twice": (lambda x: [hvd.allreduce(t * hvd.allreduce(t)) for t in x], False),
    "allgather": (lambda x: [hvd.allgather(t) for t in x], True),
    "grouped allgather": (hvd.grouped_allgather, True),
    "broadcast": (lambda x: [hvd.broadcast(t, hvd.size() - 1) for t in x], True),
}


def _inputs(name: str, rank: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(rank)
    first = 2 + rank if "allgather" in name else 2  # which may be uneven
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((first, 3), (4,))]


def _loss(results: list[torch.Tensor]) -> torch.Tensor:
    """A loss of each rank's own, not linear."""
    factors = [torch.arange(1.0, t.numel() + 1, dtype=torch.float64).reshape(t.shape) + hvd.rank() for t in results]
    return torch.stack([((f * t).sin() + f * t).sum() for f, t in zip(factors, results, strict=True)]).sum()


def _check(name: str) -> None:
    function, is_mean = FUNCTIONS[name]
    everyones = [_inputs(name, rank) for rank in range(hvd.size())]
    mine = [tensor.clone().requires_grad_() for tensor in everyones[hvd.rank()]]
    _loss(function(mine)).backward()

    def total(inputs: list[torch.Tensor]) -> float:
        with torch.no_grad():
            return float(hvd.allreduce(_loss(function(inputs)), op=hvd.Average if is_mean else hvd.Sum))

    step = 1e-6
    for rank in range(hvd.size()):
        for index, tensor in enumerate(everyones[rank]):
            for element in range(tensor.numel()):
                sides = []
                for sign in (1, -1):
                    moved = [t.clone() for t in everyones[hvd.rank()]]
                    if rank == hvd.rank():
                        moved[index].view(-1)[element] += sign * step
                    sides.append(total(moved))
                if rank == hvd.rank():
                    gradient = mine[index].grad
                    assert gradient is not None
                    expected = (sides[0] - sides[1]) / (2 * step)
                    assert float(gradient.view(-1)[element]) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("n_ranks", [1, 2, 3])
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_gradient(circles: Any, n_ranks: int, name: str) -> None:
    circles.of(n_ranks).run(_check, name)


def _torch_gradcheck() -> None:
    """Torch's own check, where all ranks move the same element at once."""
    inputs = [t.requires_grad_() for t in _inputs("", hvd.rank())]
    for function in (hvd.allreduce, lambda t: hvd.allreduce(t, op=hvd.Sum)):
        assert torch.autograd.gradcheck(function, (inputs[0],))
        assert torch.autograd.gradgradcheck(lambda t, f=function: f(t) ** 2, (inputs[1],))
    assert torch.autograd.gradcheck(lambda *t: tuple(hvd.grouped_allreduce(list(t))), inputs)


@pytest.mark.parametrize("n_ranks", [1, 2])
def test_gradcheck_of_torch(circles: Any, n_ranks: int) -> None:
    circles.of(n_ranks).run(_torch_gradcheck)
