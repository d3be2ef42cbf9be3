"""Ranks that begin with different parameters are told so in the first step, as after a forgotten broadcast."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from ranks import Ranks

pytest.importorskip("torch")

import torch

import ciranda.torch as hvd
from ciranda.errors import MismatchError

pytestmark = pytest.mark.multiprocess

TOLD = "the ranks do not begin with the same parameters; call broadcast_parameters("
LAST_ON_2 = "has other bits on rank 1 than on rank 0"


def _model(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 1))


def _step(model: torch.nn.Module, optimizer: Any) -> None:
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()


def _distributed(model: torch.nn.Module, **options: Any) -> Any:
    return hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), **options)


def _steps(model: torch.nn.Module, optimizer: Any, n_steps: int) -> None:
    for _ in range(n_steps):
        _step(model, optimizer)


WAYS: dict[str, Callable[[torch.nn.Module], Any]] = {
    "plain": _distributed,
    "groups": lambda model: _distributed(model, groups=2),
    "bucket": lambda model: _distributed(model, gradient_as_bucket_view=True),
    "overlap": lambda model: _distributed(model, overlap_forward=model),
    "adasum": lambda model: _distributed(model, op=hvd.Adasum),
    "max": lambda model: _distributed(model, op=hvd.Max),
    "nameless": lambda model: hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1)),
    "local": lambda model: hvd.LocalSGD(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()),
}


def _forget_to_broadcast(ways: list[str]) -> dict[str, tuple[str, bool]]:
    """Return the error of each way, and whether it came before any parameter changed; then go on after a broadcast."""
    found = {}
    for way in ways:
        model = _model(1 + hvd.rank())
        before = copy.deepcopy(model.state_dict())
        optimizer = WAYS[way](model)
        with pytest.raises(MismatchError) as caught:
            _steps(model, optimizer, 2)
        is_as_before = all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        found[way] = str(caught.value), is_as_before
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        _steps(model, optimizer, 3)
        if way == "overlap":
            optimizer.synchronize()
    return found


def test_every_optimizer_tells(worlds: Any) -> None:
    for found in worlds.of(2).run(_forget_to_broadcast, list(WAYS)):
        for way, (problem, is_as_before) in found.items():
            assert TOLD in problem or "call broadcast_parameters(), or average()" in problem, way
            name = "'noname." if way == "nameless" else "'0.weight' (torch.float32 [3, 4] here)"
            assert name in problem
            assert LAST_ON_2 in problem
            assert "CIRANDA_CHECK_PARAMETERS=0" in problem
            assert is_as_before, way


def _all_is_well() -> None:
    """What must not be taken for a difference."""
    rank = hvd.rank()
    # The same values in another format of memory; statistics of BatchNorm, which are no parameters.
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 2), torch.nn.BatchNorm2d(4))
    torch.manual_seed(1)
    for each in model.parameters():
        torch.nn.init.normal_(each)
    if rank == 1:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model[1].running_mean += rank  # type: ignore[operator]
    optimizer = _distributed(model)
    model(torch.ones(2, 3, 4, 4)).sum().backward()
    optimizer.step()

    # A parameter that is each rank's own; a step after another checkpoint has been loaded on all.
    model = _model(2)
    own = model[0].weight
    own.data += rank  # type: ignore[operator]
    own.is_distributed = True  # type: ignore[assignment]
    optimizer = _distributed(model)
    _step(model, optimizer)
    model.load_state_dict({**_model(3).state_dict(), "0.weight": own.detach()})  # type: ignore[dict-item]
    _step(model, optimizer)

    # Parameters of another process set, and of ranks outside it.
    pair = hvd.add_process_set([0, 1])
    model = _model(4 if pair.included() else 5 + rank)
    _step(model, hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), process_set=pair))
    hvd.remove_process_set(pair)


def test_what_is_no_difference(worlds: Any) -> None:
    worlds.of(3).run(_all_is_well)


def _tell_later() -> str:
    """A group that is added is compared in the step after that."""
    model, added = _model(1), torch.nn.Linear(4, 1)
    added.weight.data.fill_(float(hvd.rank()))
    optimizer = _distributed(model)
    _step(model, optimizer)
    optimizer.add_param_group({"params": list(added.parameters())})
    optimizer.zero_grad()
    (model(torch.ones(1, 4)) + added(torch.ones(1, 4))).sum().backward()
    with pytest.raises(MismatchError) as caught:
        optimizer.step()
    return str(caught.value)


def test_parameters_that_are_added(worlds: Any) -> None:
    for problem in worlds.of(2).run(_tell_later):
        assert TOLD in problem
        assert "(torch.float32 [1, 4] here)" in problem


def _lazy() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.LazyLinear(1))


def _make_lazily(ways: list[str]) -> dict[str, tuple[str, str]]:
    """Return the problem of a model that each rank's first forward pass makes, and then of a good beginning."""
    found = {}
    for way in ways:
        model = _lazy()
        optimizer = WAYS[way](model)
        torch.manual_seed(1 + hvd.rank())
        with pytest.raises(MismatchError) as caught:
            _steps(model, optimizer, 1)
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        _steps(model, optimizer, 2)
        if way == "overlap":
            optimizer.synchronize()
        found[way] = str(caught.value), _difference_of_lazy(way)
    return found


def _difference_of_lazy(way: str) -> str:
    """Train what the first forward pass makes as what was made before; return where the results differ."""
    trained = []
    for is_made_before in (True, False):
        model = _lazy()
        torch.manual_seed(7)
        if is_made_before:
            model(torch.ones(2, 4))
        optimizer = WAYS[way](model)
        for number in range(3):
            optimizer.zero_grad()
            model(torch.full((2, 4), hvd.rank() + number + 1.0)).square().sum().backward()
            optimizer.step()
        if way == "overlap":
            optimizer.synchronize()
        trained.append(model.state_dict())
    return " ".join(name for name, value in trained[0].items() if not torch.equal(value, trained[1][name]))


def test_lazy_parameters(worlds: Any) -> None:
    for found in worlds.of(2).run(_make_lazily, list(WAYS)):
        for way, (problem, difference) in found.items():
            assert "the ranks do not begin with the same parameters" in problem, way
            assert LAST_ON_2 in problem, way
            assert difference == "", way


def _make_some_later() -> tuple[str, str]:
    """A lazy module that the first steps do not use; and one that rank 1 never runs."""
    model, later = _model(1), torch.nn.LazyLinear(1)
    both = torch.nn.ModuleDict({"first": model, "later": later})
    optimizer = _distributed(both)
    with pytest.raises(ValueError, match=r"'later\.weight' is a lazy module's, .*: run the model once"):
        hvd.broadcast_parameters(both.named_parameters(), root_rank=0)
    _steps(model, optimizer, 2)
    torch.manual_seed(hvd.rank())
    optimizer.zero_grad()
    (model(torch.ones(2, 4)) + later(torch.ones(2, 4))).sum().backward()
    with pytest.raises(MismatchError) as caught:
        optimizer.step()

    alone = _lazy()
    optimizer = _distributed(alone)
    if hvd.rank() == 0:
        alone(torch.ones(2, 4)).sum().backward()
    with pytest.raises(MismatchError) as uneven:
        optimizer.step()

    model, later = _model(1), torch.nn.LazyLinear(1)
    local = hvd.LocalSGD(torch.optim.SGD([*model.parameters(), *later.parameters()], lr=0.1))
    for module in (model, later):
        local.zero_grad()
        module(torch.ones(2, 4)).sum().backward()
        local.step()
    hvd.check_consistency(later.named_parameters())
    return str(caught.value), str(uneven.value)


def test_lazy_parameters_that_come_later(worlds: Any) -> None:
    for later, uneven in worlds.of(2).run(_make_some_later):
        assert TOLD in later
        assert "'later.weight' (torch.float32 [1, 4] here)" in later
        assert "does not exist" in uneven


def _another_number() -> str:
    """Rank 1 trains one layer more."""
    layers = [torch.nn.Linear(2, 1) for _ in range(2 + hvd.rank())]
    for each in layers:
        for parameter in each.parameters():
            torch.nn.init.ones_(parameter)
    model = torch.nn.ModuleDict({"another": torch.nn.ModuleList(layers)})
    optimizer = _distributed(model)
    sum(layer(torch.ones(1, 2)).sum() for layer in layers).backward()  # type: ignore[union-attr]
    with pytest.raises(MismatchError) as caught:
        optimizer.step()
    return str(caught.value)


def test_ranks_with_another_number_of_parameters(worlds: Any) -> None:
    first, second = worlds.of(2).run(_another_number)
    assert "tensor number 4 (there is none here)" in first
    assert "tensor 'another.2.weight'" in second


def _one_joins_first() -> None:
    """Rank 1 has nothing to do in the first epoch: the others begin without it, and it with what they have."""
    model = _model(1)
    optimizer = _distributed(model)
    for _ in range(2 if hvd.rank() == 0 else 0):
        _step(model, optimizer)
    last = hvd.join()
    hvd.broadcast_parameters(model.state_dict(), root_rank=last if last >= 0 else 0)
    _step(model, optimizer)


def test_a_rank_that_joins_before_its_first_step(worlds: Any) -> None:
    worlds.of(2).run(_one_joins_first)


def _in_new_worlds() -> list[str]:
    model = _model(1)
    optimizer = _distributed(model)
    problems = []
    for shift in (0, hvd.rank(), 0):
        hvd.shutdown()
        hvd.init()
        model.load_state_dict({name: value + shift for name, value in _model(2).state_dict().items()})
        try:
            _step(model, optimizer)
            problems.append("")
        except MismatchError as error:
            problems.append(str(error))
    return problems


def test_each_world_compares_anew(worlds: Any) -> None:
    for first, second, third in worlds.of(2).run(_in_new_worlds):
        assert (first, third) == ("", "")
        assert TOLD in second


def _steps_of_horovod() -> list[str]:
    import horovod.torch as horovod

    model = _model(1 + hvd.rank())
    optimizer = horovod.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            _step(model, optimizer)
        again = copy.deepcopy(optimizer)  # which begins anew, in this way
        again.zero_grad()
        sum(each.sum() for group in again.param_groups for each in group["params"]).backward()  # type: ignore[union-attr]
        again.step()
    return [str(each.message) for each in caught if TOLD in str(each.message)]


def test_horovod_scripts_are_warned_once(worlds: Any) -> None:
    pytest.importorskip("horovod.torch")
    for told in worlds.of(2).run(_steps_of_horovod):
        assert len(told) == 2, "one for each optimizer"
        assert "'0.weight'" in told[0]


def _without_the_check() -> int:
    model = _model(1 + hvd.rank())
    optimizer = _distributed(model)
    for _ in range(3):
        _step(model, optimizer)
    return 3


def test_the_setting_leaves_it_out() -> None:
    """On one rank, as on all."""
    with Ranks(2, env_of=lambda rank: {"CIRANDA_CHECK_PARAMETERS": str(rank)}, with_torch=True) as ranks:
        assert ranks.run(_without_the_check) == [3, 3]
