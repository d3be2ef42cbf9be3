"""Backward passes that no step follows: batches are left out, states loaded, optimizers renewed."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from training import Share, flat, loss_of, mlp

import ciranda.torch as hvd
from ciranda.errors import AbortedError, MismatchError

pytestmark = pytest.mark.multiprocess

Parameter = torch.nn.Parameter


class _Job:
    """Parameters, and an optimizer that takes the sum of all ranks' gradients off them."""

    def __init__(self, *sizes: int, **options: Any) -> None:
        self.weights = [Parameter(torch.zeros(size)) for size in sizes]
        self.wanted = [0.0] * len(sizes)
        self.optimizer = self.wrapped(**options)

    def wrapped(self, **options: Any) -> Any:
        named = [(f"weight{place}", weight) for place, weight in enumerate(self.weights)]
        inner = torch.optim.SGD(self.weights, lr=1.0)
        return hvd.DistributedOptimizer(inner, named, **{"op": hvd.Sum, "groups": 1, **options})

    def backward(self, *gradients: float) -> None:
        """In the order of the weights; 0 for none."""
        for weight, gradient in zip(self.weights, gradients, strict=False):
            if gradient:
                (gradient * weight).sum().backward()  # type: ignore[no-untyped-call]

    def step(self, *taken: float) -> None:
        """Step, and check what was taken off each weight."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "parameters got a gradient on other ranks")
            self.optimizer.step()
        for place, gradient in enumerate(taken):
            self.wanted[place] -= gradient
        for weight, wanted in zip(self.weights, self.wanted, strict=True):
            assert weight.tolist() == [wanted] * len(weight)

    def whole_steps(self, n_steps: int = 1) -> None:
        for _ in range(n_steps):
            self.optimizer.zero_grad()
            for _ in range(self.optimizer.backward_passes_per_step):
                self.backward(*[1.0] * len(self.weights))
            n = float(hvd.size() * self.optimizer.backward_passes_per_step)
            self.step(*[n] * len(self.weights))


# --- batches that are left out


def _leave_out() -> None:
    accumulating = _Job(3, backward_passes_per_step=2)
    for _ in range(3):
        accumulating.backward(8.0)  # which nothing follows, as at the end of an epoch
        accumulating.whole_steps(2)
    for is_bucket in (False, True):
        job = _Job(3, 2, 4, gradient_as_bucket_view=is_bucket)
        for _ in range(3):
            job.whole_steps()
            job.optimizer.zero_grad()
            job.backward(8.0)  # one member of the group: nothing is under way
        job.whole_steps()


def _leave_out_what_travels() -> None:
    job = _Job(3, 2)
    for number in range(3):
        job.whole_steps(number)
        job.backward(8.0, 8.0)
        with pytest.raises(AssertionError, match=r"zero_grad.*to leave out a batch.*call synchronize\(\) before it"):
            job.optimizer.zero_grad()
        job.optimizer.synchronize()
        job.whole_steps()


def _leave_out_after_more_parameters_came() -> None:
    """What is cleared and loaded meanwhile, on one rank too, does not hide from the others that they are new."""
    for loads in (False, True):
        job = _Job(3)
        job.whole_steps(3)
        job.weights.append(Parameter(torch.zeros(2)))
        job.wanted.append(0.0)
        job.optimizer.add_param_group({"params": job.weights[1:]})
        if loads and hvd.rank() == 1:
            job.optimizer.load_state_dict(job.optimizer.state_dict())
        job.whole_steps(3)


@pytest.mark.parametrize("training", [_leave_out, _leave_out_what_travels, _leave_out_after_more_parameters_came])
def test_batches_are_left_out(worlds: Any, training: Any) -> None:
    worlds.of(2).run(training)


# --- states that are loaded


def _load() -> None:
    for options in ({}, {"gradient_as_bucket_view": True}, {"op": hvd.Adasum}):
        is_adasum = options.get("op") == hvd.Adasum
        job = _Job(3, 2, **options)
        state = copy.deepcopy(job.optimizer.state_dict())
        for number in range(8):  # the ranks begin to tell each other less and less
            job.optimizer.zero_grad()
            job.backward(2.0, 2.0)
            job.optimizer.load_state_dict(state)
            if number % 2:
                job.optimizer.zero_grad()
                job.backward(1.0, 1.0)
            taken = (1.0 if number % 2 else 2.0) * (1 if is_adasum else hvd.size())
            job.step(taken, taken)


def _load_what_one_lacks() -> None:
    """The gradients that one rank has not are under way on the others only."""
    job = _Job(3, 2)
    for has_combined in (False, True):
        for _ in range(4):
            job.optimizer.zero_grad()
            job.backward(2.0, 2.0 if hvd.rank() == 0 else 0.0)
            if has_combined:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    job.optimizer.synchronize()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                job.optimizer.load_state_dict(job.optimizer.state_dict())
                with job.optimizer.skip_synchronize():
                    job.step(2.0 * hvd.size(), 2.0)
        job.whole_steps(2)


@pytest.mark.parametrize("training", [_load, _load_what_one_lacks])
def test_states_are_loaded_before_the_step(worlds: Any, training: Any) -> None:
    worlds.of(2).run(training)


def _restore(failing: int | None) -> torch.Tensor:
    """A rank fails with gradients under way, in a program that clears gradients after the step."""
    model = mlp()
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(inner, model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer, step=0)
    left = [failing] if failing is not None else []

    @hvd.elastic.run
    def train(state: Any) -> None:
        while state.step < 6:
            state.commit()
            loss_of(model, state.step, Share(hvd.rank(), hvd.size())).backward()
            if state.step in left:
                left.clear()
                if hvd.rank() == 1:
                    hvd.shutdown()
                    raise AbortedError("this rank has had enough")
                hvd.barrier()
            optimizer.step()
            optimizer.zero_grad()
            state.step += 1

    train(state)
    return flat(model)


def test_states_are_restored_before_the_step(worlds: Any) -> None:
    world = worlds.of(2)
    undisturbed = world.run(_restore, None)[0]
    for failing in (1, 4):  # before and after the ranks know what all have
        for trained in world.run(_restore, failing):
            assert torch.equal(trained, undisturbed)


# --- optimizers that are renewed


def _renew(is_settled: bool) -> str:
    """After a disagreement one rank goes on with a new optimizer of the same parameters, the others with theirs."""
    job = _Job(3, 2)
    job.whole_steps(5 if is_settled else 0)
    job.optimizer.zero_grad()
    weight = job.weights[1]
    if hvd.rank() == 1:
        weight.data = torch.zeros(3)
    job.backward(1.0, 1.0)
    message = ""
    try:
        job.optimizer.step()
    except MismatchError as error:
        message = str(error)
    for each in job.weights:
        each.grad = None
    if hvd.rank() == 1:
        weight.data = torch.full((2,), job.wanted[1])
        job.optimizer = job.wrapped()
    job.whole_steps(4)
    return message


def _renew_for_no_reason() -> str:
    """The others fail, and then begin anew with the rank that has."""
    job = _Job(3, 2)
    job.whole_steps(3)
    job.optimizer.zero_grad()
    if hvd.rank() == 1:
        job.optimizer = job.wrapped()
    job.backward(1.0, 1.0)
    with pytest.raises(MismatchError) as caught:
        job.optimizer.step()
    job.whole_steps(4)
    return str(caught.value)


def _renew_without_names() -> str:
    weight = Parameter(torch.zeros(3))

    def wrapped() -> Any:
        return hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))

    optimizer = wrapped()
    for _ in range(3):
        weight.grad = torch.ones(3)
        optimizer.step()
    weight.data = torch.zeros(3 + hvd.rank())
    weight.grad = torch.ones(3 + hvd.rank())
    with pytest.raises(MismatchError):
        optimizer.step()
    weight.grad, weight.data = None, torch.zeros(3)
    if hvd.rank() == 1:
        optimizer = wrapped()
    weight.grad = torch.ones(3)
    with pytest.raises(MismatchError) as caught:
        optimizer.step()
    return str(caught.value)


@pytest.mark.parametrize("is_settled", [False, True])
def test_one_rank_renews_its_optimizer_after_a_disagreement(worlds: Any, is_settled: bool) -> None:
    for message in worlds.of(2).run(_renew, is_settled):
        assert "DistributedOptimizer.weight" in message


def test_one_rank_renews_its_optimizer_for_no_reason(worlds: Any) -> None:
    for message in worlds.of(2).run(_renew_for_no_reason):
        assert "weight" in message


def test_one_rank_renews_an_optimizer_without_names(worlds: Any) -> None:
    for message in worlds.of(2).run(_renew_without_names):
        assert "a rank has wrapped one more" in message
    worlds.of(2).is_broken = True  # each asks by names of its own
