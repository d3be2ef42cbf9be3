"""Ranks that come to a step in different ways: all of them step alike, or all are told why they cannot."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import ciranda.torch as hvd
from ciranda.errors import MismatchError
from ciranda.torch.presence import Presence

pytestmark = pytest.mark.multiprocess

Parameter = torch.nn.Parameter


def _optimizer(*parameters: Parameter, **options: Any) -> Any:
    """Each step takes the gradient off the parameter."""
    return hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), **options)


def _backward(weight: Parameter, gradient: float) -> None:
    (gradient * weight).sum().backward()  # type: ignore[no-untyped-call]


@contextmanager
def _missing_gradients() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "parameters got a gradient on other ranks")
        yield


# --- what a rank does between the backward pass and the step ---


def _one_rank_looks() -> None:
    """Who reads param_groups, as for a log, waits for the gradients, but not for the others to come to their step."""
    weight = Parameter(torch.zeros(3))
    optimizer = _optimizer(weight, op=hvd.Sum)
    for number in range(1, 5):
        optimizer.zero_grad()
        _backward(weight, 1.0)
        if hvd.rank() == number % 2:
            assert optimizer.param_groups[0]["lr"] == 1.0
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum, name="between").item() == hvd.size()
        if number % 2:
            optimizer.step()
        else:
            optimizer.synchronize()
            with optimizer.skip_synchronize():
                optimizer.step()
        assert weight.tolist() == [-float(number * hvd.size())] * 3


def _steps_are_left_out() -> None:
    """After gradients that all ranks have combined but not used, or have used already, a rank has none of its own."""
    weight = Parameter(torch.zeros(3))
    optimizer = _optimizer(weight)
    clear: list[Callable[[], Any]] = [
        optimizer.zero_grad,
        lambda: optimizer.zero_grad(set_to_none=False),
        lambda: setattr(weight, "grad", None),
    ]
    wanted = 0.0
    for uses, zero_grad in [*itertools.product((False, True), clear), (True, lambda: None)]:
        _backward(weight, 1.0)
        optimizer.synchronize()
        if uses:
            with optimizer.skip_synchronize():
                optimizer.step()
            wanted -= 1.0
        zero_grad()
        kept = 0.0 if weight.grad is None else float(weight.grad[0])
        if hvd.rank() == 0:
            _backward(weight, 2.0)
        with _missing_gradients():
            optimizer.step()
        wanted -= kept + 2.0 / hvd.size()
        optimizer.zero_grad()
        assert weight.tolist() == [wanted] * 3


def _closures_without_gradients() -> None:
    """A rank whose batch is empty takes part in every call of the closure."""
    weight = Parameter(torch.zeros(3))
    optimizer = _optimizer(weight)

    def closure() -> float:
        optimizer.zero_grad()
        if hvd.rank() == 0:
            _backward(weight, 1.0)
        return 0.0

    for number in range(1, 3):
        with _missing_gradients():
            optimizer.step(closure)
        assert weight.tolist() == [-number / hvd.size()] * 3


@pytest.mark.parametrize("steps", [_one_rank_looks, _steps_are_left_out, _closures_without_gradients])
def test_ranks_step_together(worlds: Any, steps: Any) -> None:
    worlds.of(2).run(steps)


def _one_rank_leaves_out_a_step() -> str:
    weight = Parameter(torch.zeros(3))
    optimizer = _optimizer(weight)
    for number in range(4):
        optimizer.zero_grad()
        _backward(weight, 1.0)
        if number < 2:
            optimizer.step()
            continue
        with pytest.raises(MismatchError) if number == 3 else warnings.catch_warnings() as caught:
            optimizer.synchronize()
        if number == 2 and hvd.rank() == 0:  # as if its own loss were not finite
            with optimizer.skip_synchronize():
                optimizer.step()
    hvd.join()  # after which steps are counted anew
    optimizer.zero_grad()
    _backward(weight, 1.0)
    optimizer.step()
    return str(caught.value)


def test_a_step_that_one_rank_leaves_out(worlds: Any) -> None:
    for message in worlds.of(2).run(_one_rank_leaves_out_a_step):
        assert "ranks have made different numbers of steps with this optimizer" in message


# --- sparse gradients that are made dense, and gradients that ranks have of different kinds ---


def _embedding() -> torch.nn.Embedding:
    torch.manual_seed(0)
    return torch.nn.Embedding(20, 2, sparse=True)


def _sparse_adam(process: int, processes: int) -> torch.Tensor:
    """In step 1 the last rank has no gradient. It would else be dense there, which SparseAdam does not take."""
    model = _embedding()
    optimizer: Any = torch.optim.SparseAdam(model.parameters(), lr=0.1)
    if processes > 1:
        optimizer = hvd.DistributedOptimizer(optimizer, op=hvd.Sum, sparse_as_dense=True)
    for step in range(3):
        optimizer.zero_grad()
        words = torch.tensor([[step, 7], [step + 1, 9]][: 1 if step == 1 else 2])
        mine = words[process::processes]
        if len(mine):
            model(mine).square().sum().backward()
        with _missing_gradients():
            optimizer.step()
        assert model.weight.grad is not None
        assert model.weight.grad.is_sparse
    return model.weight.detach()


def test_sparse_as_dense_before_an_optimizer_of_sparse_gradients(worlds: Any) -> None:
    alone = _sparse_adam(0, 1)
    for result in worlds.of(2).run(lambda: _sparse_adam(hvd.rank(), hvd.size())):
        torch.testing.assert_close(result, alone)


def _sparse_on_one_rank(sparse_as_dense: bool) -> str:
    """Rank 1 uses the embedding's weight in another way too, as tied weights are."""
    model = _embedding()
    optimizer = _optimizer(model.weight, sparse_as_dense=sparse_as_dense)
    loss = model(torch.tensor([3])).sum()
    if hvd.rank() == 1:
        loss = loss + model.weight.sum()
    before = model.weight.detach().clone()
    loss.backward()
    if not sparse_as_dense:
        with pytest.raises(MismatchError) as caught:
            optimizer.step()
        return str(caught.value)
    optimizer.step()
    wanted = torch.full((20, 2), 0.5)
    wanted[3] += 1.0
    torch.testing.assert_close(before - model.weight.detach(), wanted)
    return ""


def test_gradients_that_are_sparse_on_one_rank(worlds: Any) -> None:
    worlds.of(2).run(_sparse_on_one_rank, True)
    for message in worlds.of(2).run(_sparse_on_one_rank, False):
        assert "are sparse on some ranks and dense on others; give DistributedOptimizer sparse_as_dense=True" in message


# --- what is computed ---


def _one_has_no_gradient(op: int, other: float) -> None:
    """Whatever the operation, what some rank has is there for all, with zeros from those that have none."""
    weight, shared = (Parameter(torch.full((3,), 8.0)) for _ in range(2))
    optimizer = _optimizer(weight, shared, op=op)
    for _ in range(2):
        optimizer.zero_grad()
        _backward(shared, other)
        if hvd.rank() == 0:
            _backward(weight, other)
        with _missing_gradients():
            optimizer.step()
        assert weight.grad is not None
        assert weight.grad.tolist() == [{hvd.Min: min(other, 0.0), hvd.Max: max(other, 0.0), hvd.Product: 0.0}[op]] * 3
        assert shared.grad is not None
        assert shared.grad.tolist() == [{hvd.Product: other**2}.get(op, other)] * 3


def test_missing_gradients_by_min_max_and_product(worlds: Any) -> None:
    for op in (hvd.Min, hvd.Max, hvd.Product):
        for other in (-2.0, 2.0):
            worlds.of(2).run(_one_has_no_gradient, op, other)


# --- what the ranks ask each other, until they know that all have all gradients ---


@contextmanager
def _counted_questions() -> Iterator[list[int]]:
    """Within this, count how often this rank asks the others."""
    count, tell = [0], Presence.tell

    def counted(presence: Presence, *arguments: Any) -> None:
        count[0] += 1
        tell(presence, *arguments)

    Presence.tell = counted  # type: ignore[method-assign]
    try:
        yield count
    finally:
        Presence.tell = tell  # type: ignore[method-assign]


def _gradients_come_and_go(options: dict[str, Any]) -> None:
    """Most steps have all gradients; in the others any rank may lack any, and looks at them before its step or not."""
    draw = random.Random(7)
    weights = [Parameter(torch.zeros(size)) for size in (3, 5000, 2)]
    optimizer = _optimizer(*weights, op=hvd.Sum, **options)
    with _counted_questions() as count, _missing_gradients():
        for step in range(80):
            has_all = draw.random() < 0.7
            has = [[has_all or draw.random() < 0.6 for _ in weights] for _ in range(hvd.size())]
            looks = [draw.random() < 0.2 for _ in range(hvd.size())]
            optimizer.zero_grad()
            for index in draw.sample(range(3), 3):
                if has[hvd.rank()][index]:
                    _backward(weights[index], float(step + hvd.rank() + index))
            if looks[hvd.rank()]:
                assert optimizer.param_groups[0]["lr"] == 1.0
            optimizer.step()
            for index, weight in enumerate(weights):
                given = [float(step + rank + index) for rank in range(hvd.size()) if has[rank][index]]
                assert (weight.grad is None) == (not given), (step, index)
                if weight.grad is not None:
                    assert weight.grad.tolist() == [sum(given)] * len(weight), (step, index)
    assert 10 < count[0] < 60


@pytest.mark.parametrize("n_ranks", [2, 4])
@pytest.mark.parametrize("options", [{}, {"groups": 2}, {"gradient_as_bucket_view": True}])
def test_gradients_that_come_and_go(worlds: Any, n_ranks: int, options: dict[str, Any]) -> None:
    worlds.of(n_ranks).run(_gradients_come_and_go, options)


def _backward_of_rows(weight: Parameter, is_sparse: bool) -> None:
    rows = torch.tensor([0, 2])
    torch.nn.functional.embedding(rows, weight, sparse=is_sparse).sum().backward()  # type: ignore[no-untyped-call]


def _a_gradient_becomes_sparse(options: dict[str, Any], ranks: list[int]) -> None:
    """On all ranks or on one, the others having none, after steps in which it was dense."""
    weight, other = Parameter(torch.zeros(4, 2)), Parameter(torch.zeros(3))
    optimizer = _optimizer(weight, other, op=hvd.Sum, **options)
    with _missing_gradients():
        for step in range(8):
            is_sparse = step in (3, 6)
            optimizer.zero_grad()
            _backward(other, 1.0)
            if not is_sparse or hvd.rank() in ranks:
                _backward_of_rows(weight, is_sparse)
            optimizer.step()
            n = len(ranks) if is_sparse else hvd.size()
            assert weight.grad is not None
            assert weight.grad.is_sparse == is_sparse
            assert weight.grad.to_dense().tolist() == [[n, n], [0, 0], [n, n], [0, 0]]
            assert other.grad is not None
            assert other.grad.tolist() == [hvd.size()] * 3


def test_a_gradient_that_becomes_sparse(worlds: Any) -> None:
    for options in ({}, {"sparse_as_dense": True}, {"gradient_as_bucket_view": True}):
        for ranks in ([0, 1], [0], [1]):
            worlds.of(2).run(_a_gradient_becomes_sparse, options, ranks)


def _one_becomes_sparse() -> str:
    weight = Parameter(torch.zeros(4, 2))
    optimizer = _optimizer(weight)
    for step in range(6):
        optimizer.zero_grad()
        _backward_of_rows(weight, step == 3 and hvd.rank() == 1)
        with pytest.raises(MismatchError) if step == 3 else warnings.catch_warnings() as caught:
            optimizer.step()
        if step == 3:
            message = str(caught.value)  # type: ignore[union-attr]
    assert weight.grad is not None
    assert weight.grad.tolist() == [[1, 1], [0, 0], [1, 1], [0, 0]]
    return message


def test_a_gradient_that_becomes_sparse_on_one_rank(worlds: Any) -> None:
    for message in worlds.of(2).run(_one_becomes_sparse):
        assert "sparse on some ranks and dense on others" in message


def _weights_of_nothing() -> None:
    """What a rank of weight 0 tells of its gradients counts as what others tell; the gradients themselves do not."""
    weight, shared = Parameter(torch.zeros(3)), Parameter(torch.zeros(2))
    optimizer = _optimizer(weight, shared)
    for step in range(8):
        optimizer.zero_grad()
        optimizer.set_weight(None if step < 3 else float(hvd.rank() == 0))  # the ranks have stopped asking by then
        _backward(shared, 1.0 + hvd.rank())
        if step < 3 or hvd.rank() == 1:
            _backward(weight, 2.0)
        with _missing_gradients():
            optimizer.step()
        assert weight.grad is not None
        assert weight.grad.tolist() == [2.0 if step < 3 else 0.0] * 3
        assert shared.grad is not None
        assert shared.grad.tolist() == [1.5 if step < 3 else 1.0] * 2


def test_weights_of_nothing(worlds: Any) -> None:
    worlds.of(2).run(_weights_of_nothing)


def _large_gradients() -> None:
    """The factor is divided by before the sum: multiplied by it, these overflow."""
    weight = Parameter(torch.zeros(3))
    optimizer = _optimizer(weight, gradient_predivide_factor=4.0)
    _backward(weight, 1e38)
    optimizer.step()
    torch.testing.assert_close(weight.detach(), torch.full((3,), -1e38))


def test_gradients_are_divided_before_the_sum(worlds: Any) -> None:
    worlds.of(2).run(_large_gradients)


def _loss_while_one_has_joined() -> None:
    """LBFGS decides by the loss of all ranks, which is an average like that of the gradients."""
    if hvd.rank() == 0:
        for divisor, wanted in (("contributors", 12.0), ("world", 6.0)):
            weight = Parameter(torch.full((3,), 2.0))
            lbfgs = torch.optim.LBFGS([weight], lr=0.0, max_iter=1)
            optimizer: Any = hvd.DistributedOptimizer(lbfgs, [("weight", weight)], divisor=divisor)

            def closure(weight: Parameter = weight, optimizer: Any = optimizer) -> torch.Tensor:
                optimizer.zero_grad()
                loss = weight.square().sum()
                loss.backward()
                return loss

            assert float(optimizer.step(closure)) == wanted
            assert weight.grad is not None
            assert weight.grad.tolist() == [wanted / 3] * 3
    hvd.join()


def test_the_divisor_of_the_loss(worlds: Any) -> None:
    worlds.of(2).run(_loss_while_one_has_joined)
