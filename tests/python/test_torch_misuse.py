"""What is said of wrong uses of an optimizer: in Ciranda's words, and behind Horovod's in the module `horovod`."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("horovod._names", reason="the package in compat/horovod is not installed")

import ciranda.torch as base  # noqa: E402
import horovod.torch as hvd  # noqa: E402

pytestmark = pytest.mark.usefixtures("alone")

NOT_PAIRS = "named_parameters should be a sequence of tuples (name, parameter), usually produced by"
TWICE = "Parameter names in named_parameters must be unique. Found duplicates: a."
NOT_NAMED = "named_parameters was specified, but one or more model parameters were not named. Python object ids: {}."
MORE_PASSES = "Gradients were computed more than backward_passes_per_step times before call to step()."
ZEROED = (
    "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or optimizer.synchronize()."
)


def _model() -> torch.nn.Module:
    return torch.nn.Linear(2, 1)


def _sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def _backward(model: torch.nn.Module) -> None:
    model(torch.ones(1, 2)).sum().backward()


def _check(text: str, opening: str, own: str, module: Any) -> None:
    assert own in text
    assert text.startswith(opening) == (module is hvd)


@pytest.mark.parametrize("module", [base, hvd])
def test_wrong_names(module: Any) -> None:
    model = _model()
    weight, bias = model.parameters()
    for named, opening, own in (
        ([weight, bias], NOT_PAIRS, "must be pairs (tuples)"),
        ([("a", weight), ("a", bias)], TWICE, "found twice: ['a']"),
        ([("a", weight)], NOT_NAMED.format(id(bias)), "their shapes are [(1,)]"),
    ):
        with pytest.raises(ValueError, match="named_parameters") as caught:
            module.DistributedOptimizer(_sgd(model), named)
        _check(str(caught.value), opening, own, module)


@pytest.mark.parametrize("module", [base, hvd])
@pytest.mark.parametrize("op", [base.Average, base.Adasum])
@pytest.mark.parametrize("how", ["wrapped", "copied", "pickled"])
def test_wrong_numbers_of_passes(module: Any, op: int, how: str) -> None:
    model = _model()
    optimizer = module.DistributedOptimizer(_sgd(model), model.named_parameters(), op=op)
    if how != "wrapped":
        model, optimizer = (
            copy.deepcopy((model, optimizer)) if how == "copied" else pickle.loads(pickle.dumps((model, optimizer)))
        )
    state = optimizer.state_dict()
    _backward(model)
    with pytest.raises(AssertionError) as caught:
        optimizer.zero_grad()
    _check(str(caught.value), ZEROED, "zero_grad() was called between backward() and step()", module)
    with pytest.raises(AssertionError) as caught:
        _backward(model)
    _check(str(caught.value), MORE_PASSES, "was computed more than 1 times", module)
    optimizer.load_state_dict(state)
    optimizer.zero_grad()
    _backward(model)
    optimizer.step()
    optimizer.zero_grad()


def test_what_horovods_optimizers_show() -> None:
    model = _model()
    for op, factor in ((hvd.Average, 2.0), (hvd.Sum, 1.0), (hvd.Adasum, 1.0)):
        optimizer = hvd.DistributedOptimizer(_sgd(model), op=op, gradient_predivide_factor=factor)
        for shown in (optimizer, copy.deepcopy(optimizer)):
            assert (shown.op, shown.gradient_predivide_factor) == (op, factor)
            assert shown.sparse_as_dense is False
            assert shown.process_set is hvd.global_process_set
            assert shown.find_duplicates(["a", "b", "a", "c", "b"]) == {"a", "b"}


class _WithOp(torch.optim.SGD):
    """An optimizer with an attribute of that name."""

    op = "its own"


def test_attributes_of_the_wrapped_optimizer_are_its_own() -> None:
    optimizer = hvd.DistributedOptimizer(_WithOp(_model().parameters(), lr=0.1))
    optimizer_with_value = _WithOp(_model().parameters(), lr=0.1)
    optimizer_with_value.process_set = "its own"
    assert optimizer.op == "its own"
    assert hvd.DistributedOptimizer(optimizer_with_value).process_set == "its own"


@pytest.mark.parametrize("wrap", [base.DistributedOptimizer, base.LocalSGD, hvd.DistributedOptimizer])
def test_what_is_no_optimizer(wrap: Any) -> None:
    model = _model()
    with pytest.raises(ValueError, match=r"wraps an optimizer, and the model stays.*from_ddp") as caught:
        wrap(model, model.named_parameters())
    assert "torch.optim.SGD(model.parameters(), lr=0.1)" in str(caught.value)
    for given in (None, torch.optim.SGD, list(model.parameters())):
        with pytest.raises(ValueError, match=r"wraps an optimizer, as torch.optim.SGD\(...\), not "):
            wrap(given)
