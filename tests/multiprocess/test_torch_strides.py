"""Parameters that do not lie in memory in the order of their indices, as those of channels_last models.

Fused optimizers walk through a parameter, its gradient and its state by address: what is made for a parameter must have
its strides, or they train something else without a word.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from training import assert_same

import ciranda.torch as hvd
from ciranda.errors import MismatchError

pytestmark = pytest.mark.multiprocess

STEPS = 4
BATCH = 6
MAKERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, fused=True),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.1, fused=True),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, fused=True),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1, fused=True),
}


class _Model(torch.nn.Module):
    """Two layers in channels_last, the second with sizes of 1; and a matrix by columns."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first = torch.nn.Conv2d(3, 4, 2)
        self.second = torch.nn.Conv2d(4, 1, 2)
        self.to(memory_format=torch.channels_last)
        self.columns = torch.nn.Parameter(torch.randn(9, 5).t())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(inputs)).flatten(1) @ self.columns.t()


def _loss(model: torch.nn.Module, step: int, part: int = 0, parts: int = 1) -> torch.Tensor:
    inputs = torch.randn(BATCH, 3, 5, 5, generator=torch.Generator().manual_seed(step))
    output: torch.Tensor = model(inputs.to(memory_format=torch.channels_last)[part::parts])
    return output.square().mean()


def _train(model: torch.nn.Module, optimizer: Any, steps: range, part: int = 0, parts: int = 1) -> None:
    for step in steps:
        optimizer.zero_grad()
        _loss(model, step, part, parts).backward()
        optimizer.step()


def _flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def _alone(make: str) -> torch.Tensor:
    model = _Model()
    _train(model, MAKERS[make](model.parameters()), range(STEPS))
    return _flat(model)


def _in_buckets(options: dict[str, Any]) -> list[torch.Tensor]:
    trained = []
    for make in MAKERS.values():
        model = _Model()
        optimizer = hvd.DistributedOptimizer(
            make(model.parameters()), model.named_parameters(), gradient_as_bucket_view=True, **options
        )
        _train(model, optimizer, range(STEPS), hvd.rank(), hvd.size())
        for parameter in model.parameters():
            assert parameter.grad is not None
            assert parameter.grad.stride() == parameter.stride()
        trained.append(_flat(model))
    return trained


def _assert_trained(results: list[list[torch.Tensor]], tolerance: float = 1e-4) -> None:
    """By each of the optimizers, as in one process."""
    for trained, make in zip(zip(*results, strict=True), MAKERS, strict=True):
        assert_same(list(trained), _alone(make), tolerance)


@pytest.mark.parametrize("n_ranks", [2, 3])
def test_gradients_in_buckets(worlds: Any, n_ranks: int) -> None:
    """In private memory at first, then in shared memory."""
    _assert_trained(worlds.of(n_ranks).run(_in_buckets, {}))


def test_gradients_in_buckets_that_are_compressed(worlds: Any) -> None:
    _assert_trained(worlds.of(2).run(_in_buckets, {"compression": hvd.Compression.bf16, "groups": 2}), 0.2)


def _in_buckets_without_copies() -> tuple[int, int]:
    """How many bytes were combined where they lie in the last step, and those of all gradients."""
    from ciranda._basics import engine

    model = torch.nn.Conv2d(64, 64, 3).to(memory_format=torch.channels_last)
    optimizer = hvd.DistributedOptimizer(
        MAKERS["SGD"](model.parameters()), model.named_parameters(), gradient_as_bucket_view=True
    )
    for _ in range(3):
        before = engine().n_bytes_in_place
        optimizer.zero_grad()
        model(torch.ones(1, 64, 4, 4)).sum().backward()
        optimizer.step()
    return engine().n_bytes_in_place - before, sum(parameter.nbytes for parameter in model.parameters())


def test_buckets_are_combined_where_they_lie(worlds: Any) -> None:
    for in_place, n_bytes in worlds.of(2).run(_in_buckets_without_copies):
        assert in_place == n_bytes


def _by_ddp() -> tuple[torch.Tensor, int]:
    """Through DDP's own buckets, which its hook moves to shared memory; and how many bytes were combined there."""
    import torch.distributed as dist

    from ciranda._basics import engine
    from ciranda.torch.distributed import ddp_comm_hook

    dist.init_process_group("ciranda")
    try:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 2), torch.nn.Conv2d(64, 64, 2))
        model.to(memory_format=torch.channels_last)
        ddp = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        ddp.register_comm_hook(None, ddp_comm_hook)
        before = engine().n_bytes_in_place
        _train(ddp, MAKERS["Adam"](model.parameters()), range(STEPS), hvd.rank(), hvd.size())
        return _flat(model), engine().n_bytes_in_place - before
    finally:
        dist.destroy_process_group()


def test_buckets_of_ddp(worlds: Any) -> None:
    (alone, _), *_ = worlds.of(1).run(_by_ddp)
    results = worlds.of(2).run(_by_ddp)
    assert_same([trained for trained, _ in results], alone, 1e-4)
    assert all(in_place > 0 for _, in_place in results)


def _different_on_one_rank(gradient_as_bucket_view: bool) -> str:
    """The weight has as many input channels as it is high and wide: nothing but its strides tells."""
    torch.manual_seed(0)
    model = torch.nn.Conv2d(3, 4, 3)
    alone = copy.deepcopy(model)
    if hvd.rank() == 1:
        model = model.to(memory_format=torch.channels_last)
    optimizer = hvd.DistributedOptimizer(
        MAKERS["Adam"](model.parameters()),
        model.named_parameters(),
        gradient_as_bucket_view=gradient_as_bucket_view,
    )
    inputs = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(1))
    model(inputs).square().sum().backward()
    if gradient_as_bucket_view:
        with pytest.raises(MismatchError) as caught:
            optimizer.step()
        return str(caught.value)
    optimizer.step()
    inner = MAKERS["Adam"](alone.parameters())
    alone(inputs).square().sum().backward()
    inner.step()
    torch.testing.assert_close(_flat(model), _flat(alone))
    return ""


def test_strides_that_differ_between_ranks(worlds: Any) -> None:
    """Each gradient by itself is sent in the order of its indices; together they are sent as they lie."""
    worlds.of(2).run(_different_on_one_rank, False)
    for message in worlds.of(2).run(_different_on_one_rank, True):
        assert "ranks have parameters with different strides" in message
        assert "the same memory_format before their optimizers are wrapped" in message


def _converted_after_wrapping() -> torch.Tensor:
    model = _Model()
    for parameter in model.parameters():
        parameter.data = parameter.data.contiguous()
    optimizer = hvd.DistributedOptimizer(
        MAKERS["Adam"](model.parameters()), model.named_parameters(), gradient_as_bucket_view=True
    )
    for parameter, like in zip(model.parameters(), _Model().parameters(), strict=True):
        parameter.data = like.data
    _train(model, optimizer, range(STEPS), hvd.rank(), hvd.size())
    return _flat(model)


def _of_another_shape() -> list[float]:
    """One that fits into the old place only if it is repeated there."""
    weight, other = torch.nn.Parameter(torch.zeros(2, 3)), torch.nn.Parameter(torch.zeros(1))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([weight, other], lr=1.0), [("weight", weight), ("other", other)], gradient_as_bucket_view=True
    )
    weight.data = torch.zeros(1, 3)
    for step in range(3):
        optimizer.zero_grad()
        (weight.sum() * (step + hvd.rank()) + other.sum()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return [*weight.detach().flatten().tolist(), *other.tolist()]


def test_a_model_that_is_converted_after_wrapping(worlds: Any) -> None:
    assert_same(worlds.of(2).run(_converted_after_wrapping), _alone("Adam"), 1e-4)
    assert worlds.of(2).run(_of_another_shape) == [[-4.5, -4.5, -4.5, -3.0]] * 2


# --- gradients and results that are not autograd's


def _gradients_that_are_made() -> None:
    """Of what is expanded, missing, or sparse on one rank and dense on the other."""
    for options in ({}, {"gradient_as_bucket_view": True}):
        weight = torch.nn.Parameter(torch.zeros(5, 3).t().clone(memory_format=torch.preserve_format))
        assert weight.stride() == (1, 3)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([weight], lr=1.0, fused=True),
            [("weight", weight)],
            op=hvd.Sum,
            sparse_as_dense=True,
            **options,
        )
        wanted = torch.zeros(3, 5)
        for step in range(4):
            optimizer.zero_grad()
            given = torch.arange(15.0).view(3, 5) + step
            if step == 0:
                given = torch.arange(3.0)[:, None].expand(3, 5)
            if step == 2:
                weight.grad = given.to_sparse(1) if hvd.rank() == 0 else given.t().contiguous().t()
            elif step != 3 or hvd.rank() == 0:
                weight.grad = given if step == 0 else given.t().contiguous().t()
            wanted -= given * (1 if step == 3 else hvd.size())
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "parameters got a gradient on other ranks")
                optimizer.step()
            assert torch.equal(weight.detach(), wanted), (options, step)


def test_gradients_that_are_made_for_a_parameter(worlds: Any) -> None:
    worlds.of(2).run(_gradients_that_are_made)


def _results() -> None:
    """What is computed element by element keeps strides, as torch's own functions do."""
    index = torch.arange(24.0).view(1, 2, 3, 4)
    n, root = hvd.size(), 0
    for given in (
        index.to(memory_format=torch.channels_last),
        index.permute(3, 2, 1, 0),
        index[:, :, :, ::2],
        index[..., :1].expand(1, 2, 3, 5),
        index,
    ):
        strides = torch.empty_like(given).stride()
        calls: list[Any] = [
            hvd.allreduce(given, op=hvd.Sum),
            hvd.allreduce(given, op=hvd.Sum, compression=hvd.Compression.bf16),
            hvd.synchronize(hvd.allreduce_async(given, op=hvd.Sum)),
            *hvd.grouped_allreduce([given, given], op=hvd.Sum),
            hvd.allreduce(given.clone().requires_grad_(), op=hvd.Sum).detach(),
        ]
        moved: list[Any] = [
            hvd.broadcast(given, root),
            hvd.synchronize(hvd.broadcast_async(given, root)),
            *hvd.grouped_broadcast([given, given], root),
        ]
        reduced = hvd.reduce(given, root, op=hvd.Sum)
        if reduced is not None:
            calls.append(reduced)
        scanned = hvd.scan(given)
        assert torch.equal(scanned, given * (hvd.rank() + 1))
        for result, factor in [*[(each, n) for each in calls], *[(each, 1) for each in moved]]:
            assert torch.equal(result, given * factor)
            assert result.stride() == strides
        assert scanned.stride() == strides


def test_results(worlds: Any) -> None:
    worlds.of(2).run(_results)


# --- state


def _half(make: str) -> tuple[dict[str, Any], dict[str, Any]]:
    model = _Model()
    optimizer = MAKERS[make](model.parameters())
    _train(model, optimizer, range(2))
    return model.state_dict(), copy.deepcopy(optimizer.state_dict())


def _resume(is_elastic: bool) -> list[torch.Tensor]:
    trained = []
    for name, make in MAKERS.items():
        model = _Model()
        optimizer: Any = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters())
        if hvd.rank() == 0:
            of_model, of_optimizer = _half(name)
            model.load_state_dict(of_model)
            optimizer.load_state_dict(of_optimizer)
        if is_elastic:
            state = hvd.elastic.TorchState(model, optimizer)
            state.sync()
            _train(model, optimizer, range(1), hvd.rank(), hvd.size())
            state.restore()
        else:
            hvd.broadcast_parameters(model.state_dict(), root_rank=0)
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        for parameter in model.parameters():
            assert all(
                value.ndim == 0 or value.stride() == parameter.stride() for value in optimizer.state[parameter].values()
            )
        _train(model, optimizer, range(2, STEPS), hvd.rank(), hvd.size())
        trained.append(_flat(model))
    return trained


@pytest.mark.parametrize("is_elastic", [False, True])
def test_resuming(worlds: Any, is_elastic: bool) -> None:
    _assert_trained(worlds.of(2).run(_resume, is_elastic))


def _state_of_other_strides() -> None:
    """The root's state is laid out by another memory format than its parameter's, or this rank's is."""
    weight = torch.nn.Parameter(torch.zeros(3, 5) if hvd.rank() == 0 else torch.zeros(5, 3).t())
    optimizer = torch.optim.SGD([weight], lr=1.0, momentum=0.5, fused=True)
    momentum = torch.arange(15.0).view(3, 5)
    if hvd.rank() == 0:
        optimizer.state[weight]["momentum_buffer"] = momentum.t().contiguous().t()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    weight.grad = torch.zeros_like(weight)
    optimizer.step()
    assert torch.equal(weight.detach(), -momentum / 2)


def test_state_lies_as_the_parameter_does(worlds: Any) -> None:
    worlds.of(2).run(_state_of_other_strides)
