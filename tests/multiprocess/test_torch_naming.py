"""Optimizers whose parameters have no names, or got them late: ranks find theirs, or are told that they do not."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import ciranda.torch as hvd
from ciranda.errors import MismatchError

pytestmark = pytest.mark.multiprocess


def _optimizer(process_set: Any = hvd.global_process_set, op: int = hvd.Average) -> tuple[torch.nn.Parameter, Any]:
    weight = torch.nn.Parameter(torch.zeros(3))
    return weight, hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), process_set=process_set, op=op)


def _begin(weight: torch.nn.Parameter, factor: float = 1.0) -> None:
    (factor * (hvd.rank() + 1) * weight).sum().backward()  # type: ignore[no-untyped-call]


def _train_in_several_sets() -> None:
    """The ranks of one set have wrapped an optimizer more, as have those that have not joined."""
    rank, pair = hvd.rank(), hvd.add_process_set([0, 1])
    if pair.included():
        weight, optimizer = _optimizer(pair)
        _begin(weight)
        optimizer.step()
        assert weight.tolist() == [-1.5] * 3
    first_weight, first = _optimizer()
    if rank != 1:
        weight, optimizer = _optimizer()
        _begin(weight)
        optimizer.step()
        assert weight.tolist() == [-2.0] * 3
    hvd.join()
    last_weight, last = _optimizer()
    _begin(first_weight)
    _begin(last_weight, 2.0)
    last.step()
    first.step()
    assert first_weight.tolist() == [-2.0] * 3
    assert last_weight.tolist() == [-4.0] * 3
    hvd.remove_process_set(pair)


def test_optimizers_are_counted_in_each_set(worlds: Any) -> None:
    worlds.of(3).run(_train_in_several_sets)


def _one_more_on_rank_0() -> list[str]:
    messages = []
    keep = _optimizer() if hvd.rank() == 0 else None
    for op in (hvd.Average, hvd.Adasum):
        weight, optimizer = _optimizer(op=op)
        _begin(weight)
        with pytest.raises(MismatchError) as caught:
            optimizer.step()
        messages.append(str(caught.value))
    del keep
    named = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("weight", weight)])
    weight.grad = None
    _begin(weight)
    named.step()
    assert weight.tolist() == [-1.5] * 3
    hvd.join()  # after which all count alike again
    return messages


def test_one_optimizer_more_on_one_rank(worlds: Any) -> None:
    """They do not wait for each other; and optimizers with names are not concerned."""
    for rank, messages in enumerate(worlds.of(2).run(_one_more_on_rank_0)):
        assert len(messages) == 2
        for message in messages:
            assert "a rank has wrapped one more. Give named_parameters" in message
            assert f"on rank {rank}," in message


def _add_to_two() -> None:
    """Both have one parameter, get one more, and have their gradients under way at the same time."""
    pairs = []
    for name in ("a", "b", None):
        first, more = torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(3))
        named = None if name is None else [(name, first)]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([first], lr=1.0), named)
        optimizer.add_param_group({"params": [more]})
        pairs.append((more, optimizer))
    for factor, (more, _) in enumerate(pairs, 1):
        _begin(more, factor)
    for factor, (more, optimizer) in enumerate(pairs, 1):
        optimizer.step()
        assert more.tolist() == [-1.5 * factor] * 3


def test_parameters_added_to_several_optimizers(worlds: Any) -> None:
    worlds.of(2).run(_add_to_two)


def _long_names() -> None:
    """Of two names that begin alike for longer than names travel, neither is refused, nor taken for the other."""
    beginning = "ö" * 2000
    model = torch.nn.ParameterDict({"a": torch.ones(2), "b": torch.ones(3)})
    named = [(f"{beginning}.{name}", parameter) for name, parameter in model.items()]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), named_parameters=named)
    hvd.broadcast_parameters(named, 0)
    for step in range(3):
        optimizer.zero_grad()
        (sum(parameter.sum() for parameter in model.values()) * hvd.rank()).backward()
        optimizer.step()
        assert model["a"][0] == model["b"][2] == 1 - (step + 1) * (hvd.size() - 1) / 2
    handles = [hvd.allreduce_async(torch.full((n,), 1.0 * n), name=beginning + str(n), op=hvd.Sum) for n in (1, 2)]
    assert [handle.wait()[0].item() for handle in handles] == [hvd.size(), 2 * hvd.size()]


def test_names_may_be_of_any_length(worlds: Any) -> None:
    worlds.of(2).run(_long_names)
