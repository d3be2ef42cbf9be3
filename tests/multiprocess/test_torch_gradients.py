"""Gradients of the collectives in fp64, against finite differences.

The loss of a rank depends on all ranks' inputs. The gradient is that of the sum of all ranks' losses; of their mean,
for allgather and broadcast; of n times their sum, for reducescatter. Each element of each rank's input is moved a
little, and the sum looked at.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import ciranda.torch as hvd

pytestmark = pytest.mark.multiprocess

Function = Callable[[list[torch.Tensor]], list[torch.Tensor]]

#: Name: the function of a list of tensors, and the power of n by which its gradient differs from that of the sum.
FUNCTIONS: dict[str, tuple[Function, int]] = {
    "allreduce average": (lambda x: [hvd.allreduce(t) for t in x], 0),
    "allreduce sum": (lambda x: [hvd.allreduce(t, op=hvd.Sum) for t in x], 0),
    "allreduce scaled": (
        lambda x: [hvd.allreduce(t, op=hvd.Sum, prescale_factor=0.5, postscale_factor=-3.0) for t in x],
        0,
    ),
    "allreduce min": (lambda x: [hvd.allreduce(t, op=hvd.Min) for t in x], 0),
    "allreduce max scaled": (lambda x: [hvd.allreduce(t, op=hvd.Max, prescale_factor=-2.0) for t in x], 0),
    "grouped average": (hvd.grouped_allreduce, 0),
    "grouped sum": (lambda x: hvd.grouped_allreduce(x, op=hvd.Sum, postscale_factor=0.25), 0),
    "grouped max": (lambda x: hvd.grouped_allreduce(x, op=hvd.Max), 0),
    "allreduce weighted": (lambda x: [hvd.allreduce(t, weight=1.0 + hvd.rank(), postscale_factor=2.0) for t in x], 0),
    "grouped weighted": (lambda x: hvd.grouped_allreduce(x, weight=2.0 * hvd.rank() + 0.5), 0),
    "twice": (lambda x: [hvd.allreduce(t * hvd.allreduce(t)) for t in x], 0),
    "allgather": (lambda x: [hvd.allgather(t) for t in x], -1),
    "grouped allgather": (hvd.grouped_allgather, -1),
    "alltoall": (lambda x: [hvd.alltoall(x[0], _splits())[0], hvd.alltoall(x[1].repeat(3))[: hvd.rank() + 1]], 0),
    "grouped alltoall": (lambda x: [output for output, _ in _pair_of_alltoalls(x)], 0),
    "reducescatter average": (lambda x: [hvd.reducescatter(t) for t in x], 1),
    "reducescatter sum": (
        lambda x: [hvd.reducescatter(t, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0) for t in x],
        1,
    ),
    "grouped reducescatter": (lambda x: hvd.grouped_reducescatter(x, op=hvd.Sum), 1),
    "reduce average": (lambda x: _there(hvd.reduce(t, hvd.size() - 1) for t in x), 0),
    "reduce sum": (
        lambda x: _there(hvd.reduce(t, 0, hvd.Sum, prescale_factor=0.5, postscale_factor=3.0) for t in x),
        0,
    ),
    "grouped reduce": (lambda x: _there(hvd.grouped_reduce(x, 0, hvd.Sum) or []), 0),
    "gather": (lambda x: _there(hvd.gather(t, hvd.size() - 1) for t in x), 0),
    "grouped gather": (lambda x: _there(hvd.grouped_gather(x, 0) or []), 0),
    "scatter": (lambda x: [hvd.scatter(x[0], 0), hvd.scatter(x[1], hvd.size() - 1, [4] + [0] * (hvd.size() - 1))], 0),
    "grouped scatter": (lambda x: hvd.grouped_scatter(x, hvd.size() - 1), 0),
    "broadcast": (lambda x: [hvd.broadcast(t, hvd.size() - 1) for t in x], -1),
}


def _there(results: Iterable[torch.Tensor | None]) -> list[torch.Tensor]:
    return [result for result in results if result is not None]


def _splits() -> list[int]:
    """All rows but one to the next rank."""
    n, rank = hvd.size(), hvd.rank()
    rows = 2 + rank
    splits = [0] * n
    splits[(rank + 1) % n] += rows - 1
    splits[rank] += 1
    return splits


def _pair_of_alltoalls(x: list[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return hvd.grouped_alltoall([x[0], x[1].repeat(hvd.size())], [_splits(), None])


def _inputs(name: str, rank: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(rank)
    first = 2 + rank if name.endswith(("gather", "alltoall")) else 2  # which may be uneven
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((first, 3), (4,))]


def _loss(results: list[torch.Tensor]) -> torch.Tensor:
    """A loss of each rank's own, not linear."""
    factors = [torch.arange(1.0, t.numel() + 1, dtype=torch.float64).reshape(t.shape) + hvd.rank() for t in results]
    parts = [((f * t).sin() + f * t).sum() for f, t in zip(factors, results, strict=True)]
    return sum(parts, torch.zeros((), dtype=torch.float64))


def _check(name: str) -> None:
    function, power = FUNCTIONS[name]
    everyones = [_inputs(name, rank) for rank in range(hvd.size())]
    mine = [tensor.clone().requires_grad_() for tensor in everyones[hvd.rank()]]
    _loss(function(mine)).backward()

    def total(inputs: list[torch.Tensor]) -> float:
        with torch.no_grad():
            return float(hvd.allreduce(_loss(function(inputs)), op=hvd.Sum)) * float(hvd.size()) ** power

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
def test_gradient(worlds: Any, n_ranks: int, name: str) -> None:
    worlds.of(n_ranks).run(_check, name)


#: Of a call named "x", and whether its gradient is made by several.
NAMED: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor | None], set[str]]] = {
    "allreduce": (lambda x: hvd.allreduce(x, name="x"), set()),
    "allreduce max": (
        lambda x: hvd.allreduce(x, name="x", op=hvd.Max, prescale_factor=2.0),
        {".chosen", ".compared"},
    ),
    "allreduce weighted": (lambda x: hvd.allreduce(x, name="x", weight=1.0), {".weight"}),
    "allgather": (lambda x: hvd.allgather(x, name="x"), {".sizes"}),
    "broadcast": (lambda x: hvd.broadcast(x, 0, name="x"), set()),
    "reducescatter": (lambda x: hvd.reducescatter(x, name="x"), set()),
    "alltoall": (lambda x: hvd.alltoall(x, name="x"), set()),
    "reduce": (lambda x: hvd.reduce(x, 0, name="x"), set()),
    "gather": (lambda x: hvd.gather(x, 0, name="x"), {".sizes"}),
    "scatter": (lambda x: hvd.scatter(x, 0, name="x"), set()),
}


def _record_backward(path: str, function: str) -> None:
    hvd.start_timeline(path)
    inputs = torch.ones(4, dtype=torch.float64).requires_grad_()
    result = NAMED[function][0](inputs)
    assert result is not None  # in a world of one, everybody is the root
    result.sum().backward()
    hvd.stop_timeline()


@pytest.mark.parametrize("function", NAMED)
def test_calls_of_the_backward_pass_are_named_after_the_call(worlds: Any, function: str, tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    worlds.of(1).run(_record_backward, str(path), function)
    rows = {event["args"]["name"] for event in json.loads(path.read_text()) if event["name"] == "thread_name"}
    calls = {row.partition(".")[2] for row in rows}
    assert calls == {"x", "x.gradient"} | {f"x.gradient{part}" for part in NAMED[function][1]}


def _differentiate_in_threads() -> list[float]:
    """What was wrong of each thread's gradients, which the threads of the ranks compute in any order."""
    wrong: list[float] = []

    def differentiate(number: int) -> None:
        for _ in range(150):
            inputs = torch.ones(4, requires_grad=True)
            (hvd.allreduce(inputs, name=f"thread {number}", op=hvd.Sum).sum() * 10**number).backward()
            assert inputs.grad is not None
            wrong.extend(each for each in inputs.grad.tolist() if each != hvd.size() * 10**number)

    threads = [threading.Thread(target=differentiate, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def test_named_calls_are_differentiated_in_threads(worlds: Any) -> None:
    assert worlds.of(2).run(_differentiate_in_threads) == [[], []]


#: Grouped operations of which every rank has all outputs.
APART = sorted(
    name for name in FUNCTIONS if name.startswith("grouped ") and name not in ("grouped reduce", "grouped gather")
)


def _check_apart() -> None:
    for name in APART:
        function, _ = FUNCTIONS[name]
        together, apart = ([t.requires_grad_() for t in _inputs(name, hvd.rank())] for _ in range(2))
        _loss(function(together)).backward()
        results = function(apart)
        for index, result in enumerate(results):
            others = [other.detach() for other in results]
            _loss([*others[:index], result, *others[index + 1 :]]).backward()
        for a, b in zip(together, apart, strict=True):
            torch.testing.assert_close(a.grad, b.grad, msg=name)


def test_backward_through_one_output_after_the_other(worlds: Any) -> None:
    worlds.of(2).run(_check_apart)


def _torch_gradcheck() -> None:
    """Torch's own check, where all ranks move the same element at once."""
    inputs = [t.requires_grad_() for t in _inputs("", hvd.rank())]
    for function in (hvd.allreduce, lambda t: hvd.allreduce(t, op=hvd.Sum)):
        assert torch.autograd.gradcheck(function, (inputs[0],))
        assert torch.autograd.gradgradcheck(lambda t, f=function: f(t) ** 2, (inputs[1],))
    assert torch.autograd.gradcheck(lambda *t: tuple(hvd.grouped_allreduce(list(t))), inputs)


@pytest.mark.parametrize("n_ranks", [1, 2])
def test_gradcheck_of_torch(worlds: Any, n_ranks: int) -> None:
    worlds.of(n_ranks).run(_torch_gradcheck)
