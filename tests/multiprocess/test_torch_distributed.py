"""The backend of torch.distributed must give what gloo gives, alone, in subgroups, in DDP and in FSDP2."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from ranks import Ranks, wait_until

import ciranda.torch as hvd
from ciranda._basics import engine
from ciranda.errors import InvalidArgumentError, NotSupportedError

pytestmark = pytest.mark.multiprocess

ROOT = Path(__file__).resolve().parents[2]
SIZES = pytest.mark.parametrize("n_ranks", [1, 2, 3, 4])


def _with_groups(body: Callable[[Any], None], ranks: list[int] | None = None) -> None:
    """Run body(group of gloo) with torch.distributed up, its default group, or one of `ranks`, being of ciranda."""
    import ciranda.torch.distributed  # noqa: F401

    dist.init_process_group("ciranda")
    try:
        assert (dist.get_rank(), dist.get_world_size()) == (hvd.rank(), hvd.size())
        body(dist.new_group(backend="gloo"))
    finally:
        dist.destroy_process_group()


def _both(call: Callable[..., Any], ours: Any, gloo: Any, *tensors: Any) -> None:
    """Let `call` change equal copies of the tensors in a group of each backend, and compare all of them."""
    results = copy.deepcopy(tensors), copy.deepcopy(tensors)
    call(*results[0], group=ours)
    call(*results[1], group=gloo)
    torch.testing.assert_close(results[0], results[1], equal_nan=True)


def _data(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(97 * seed + hvd.rank())
    return (torch.randn(shape, generator=generator) * 8).to(dtype)


def _empty(*shape: int) -> torch.Tensor:
    return torch.full(shape, -1.0)


def _collectives(ours: Any, gloo: Any, ranks: list[int]) -> None:
    n = len(ranks)
    for dtype in (torch.float32, torch.float64, torch.int64, torch.uint8):
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
            for shape in ((), (0,), (1,), (33, 7)):
                tensor = _data(1, *shape, dtype=dtype)
                _both(lambda t, group, op=op: dist.all_reduce(t, op, group=group), ours, gloo, tensor)
    bits = _data(2, 9, dtype=torch.int32)
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        _both(lambda t, group, op=op: dist.all_reduce(t, op, group=group), ours, gloo, bits)
    table = _data(3, n, 5)
    strided = _data(3, 5, 6).t()
    _both(lambda t, group: dist.all_reduce(t, group=group), ours, gloo, strided)
    mean = table.clone()
    dist.all_reduce(mean, dist.ReduceOp.AVG, group=ours)
    _both(lambda t, group: dist.all_reduce(t, group=group), ours, gloo, table)
    total = table.clone()
    dist.all_reduce(total, group=ours)
    assert torch.equal(mean, total / n)
    for root in ranks:
        here = dist.get_rank() == root
        _both(lambda t, group, root=root: dist.broadcast(t, root, group=group), ours, gloo, table)
        _both(lambda t, group, root=root: dist.broadcast(t, root, group=group), ours, gloo, strided)
        reduced = [table.clone(), table.clone()]
        for group, each in zip((ours, gloo), reduced, strict=True):
            dist.reduce(each, root, group=group)
        if here:
            torch.testing.assert_close(*reduced)
        _both(
            lambda parts, t, group, root=root, here=here: dist.gather(t, parts if here else None, root, group=group),
            ours, gloo, [_empty(n, 5) for _ in range(n)], table,
        )  # fmt: skip
        _both(
            lambda t, parts, group, root=root, here=here: dist.scatter(t, parts if here else None, root, group=group),
            ours, gloo, _empty(2, 3), [_data(4 + each, 2, 3) for each in range(n)],
        )  # fmt: skip
    _both(lambda o, t, group: dist.all_gather(o, t, group=group), ours, gloo, [_empty(n, 5) for _ in range(n)], table)
    _both(
        lambda o, t, group: dist.all_gather_coalesced(o, t, group=group),
        ours, gloo, [[_empty(n, 5), _empty(2), _empty(3)] for _ in range(n)], [table, _data(8, 2), _data(9, 3)],
    )  # fmt: skip
    _both(lambda o, t, group: dist.all_gather_single(o, t, group=group), ours, gloo, _empty(n * n, 5), table)
    _both(lambda o, t, group: dist.all_gather_single(o, t, group=group), ours, gloo, _empty(n * 4), _data(5, 4))
    _both(lambda o, t, group: dist.reduce_scatter_single(o, t, group=group), ours, gloo, _empty(1, 5), table)
    _both(lambda o, t, group: dist.reduce_scatter(o, t, group=group), ours, gloo, _empty(4), [_data(6, 4)] * n)
    _both(lambda o, t, group: dist.all_to_all_single(o, t, group=group), ours, gloo, _empty(n, 5), table)
    me = ranks.index(dist.get_rank())
    sent = [(me + to) % 3 for to in range(n)]
    received = [(sender + me) % 3 for sender in range(n)]
    _both(
        lambda o, t, group: dist.all_to_all_single(o, t, received, sent, group=group),
        ours, gloo, _empty(sum(received), 2), _data(7, sum(sent), 2),
    )  # fmt: skip
    parts = [_empty(each) for each in received]
    dist.all_to_all(parts, [torch.full((each,), float(me)) for each in sent], group=ours)
    for sender, part in enumerate(parts):
        assert part.tolist() == [float(sender)] * received[sender]
    objects: list[Any] = [None] * n
    dist.all_gather_object(objects, {"rank": me}, group=ours)
    assert [each["rank"] for each in objects] == list(range(n))
    dist.barrier(group=ours)


def _in_the_world() -> None:
    _with_groups(lambda gloo: _collectives(dist.group.WORLD, gloo, list(range(hvd.size()))))


def _in_subgroups() -> None:
    def body(_gloo: Any) -> None:
        # The second is a rotation, which is not its own way back; the third once more the first: a group of its own.
        for ranks in ([0, 2], [1, 2, 0], [0, 2]):
            ours = dist.new_group(ranks, sort_ranks=False)
            gloo = dist.new_group(ranks, sort_ranks=False, backend="gloo")
            if dist.get_rank() in ranks:
                assert dist.get_process_group_ranks(ours) == ranks
                _collectives(ours, gloo, ranks)

    _with_groups(body)


def _what_does_not_fit() -> None:
    """What gloo refuses is not converted, left out or given to the wrong tensor instead."""

    def body(gloo: Any) -> None:
        n, rank = dist.get_world_size(), dist.get_rank()
        whole, half = torch.empty(2 * n, dtype=torch.int64), torch.full((2,), 1.5)
        with pytest.raises(
            InvalidArgumentError, match=r"the input is of type torch.float32, but the output of torch.int64"
        ):
            dist.all_gather_single(whole, half)
        with pytest.raises(
            InvalidArgumentError, match=r"the input is of type torch.float32, but the output of torch.int64"
        ):
            dist.reduce_scatter_single(whole[:2], half.repeat(n))
        more = [_empty(2) for _ in range(n + 1)]
        for call in (lambda: dist.all_gather(more, half), lambda: dist.reduce_scatter(half, more)):
            with pytest.raises(
                InvalidArgumentError, match=f"a list of {n + 1} tensors was given in a group of {n} ranks"
            ):
                call()
        # As many elements come to each rank as it has room for, but of other ranks.
        sent = [_empty(1 + (rank + other) % 2) for other in range(n)]
        wrong = [_empty(2 - (rank + other) % 2) for other in range(n)]
        with pytest.raises(
            InvalidArgumentError, match=rf"rank 0 of the group has sent {1 + rank} elements to rank {rank}"
        ):
            dist.all_to_all(wrong, sent)

    _with_groups(body)


def _between_two() -> None:
    def body(_gloo: Any) -> None:
        n, rank = dist.get_world_size(), dist.get_rank()
        to, origin = (rank + 1) % n, (rank - 1) % n
        received = [torch.zeros(3), torch.zeros(3, 2).t()]
        works = [dist.isend(torch.full((3,), float(rank)), to), dist.irecv(received[0], origin)]
        works += [dist.isend(torch.full((2, 3), 10.0 + rank), to, tag=5), dist.irecv(received[1], origin, tag=5)]
        for work in works:
            assert work is not None
            work.wait()
        assert received[0].tolist() == [float(origin)] * 3
        assert received[1].tolist() == [[10.0 + origin] * 3] * 2
        _match_messages(dist.new_group(), dist.new_group(list(range(n - 1, -1, -1))), to, origin)
        _receive_from_any(dist.new_group())
        with pytest.raises(NotSupportedError, match="is not supported by the backend ciranda"):
            dist.all_reduce(torch.zeros(1), op=dist._make_nccl_premul_sum(2.0))

    _with_groups(body)


def _match_messages(one: Any, other: Any, to: int, origin: int) -> None:
    """Messages of one tag and group come in the order of sending; tags, and groups, have nothing to do with others."""

    def send(value: float, group: Any, tag: int) -> Any:
        return dist.isend(torch.full((int(value) % 3,), value), to, group, tag)

    def receive(value: float, group: Any, tag: int) -> tuple[Any, torch.Tensor, float]:
        tensor = _empty(int(value) % 3)
        return dist.irecv(tensor, origin, group, tag), tensor, value

    streams = [(group, tag) for group in (None, one, other) for tag in (0, 3, 4)]
    sent, received = [], []
    for n_before in range(4):
        for index, (group, tag) in enumerate(streams):
            sent.append(send(10.0 * n_before + index, group, tag))
    for index, (group, tag) in reversed(list(enumerate(streams))):
        for n_before in range(4):
            received.append(receive(10.0 * n_before + index, group, tag))
    for work in sent:
        work.wait()
    for work, tensor, value in received:
        work.wait()
        assert tensor.tolist() == [value] * (int(value) % 3)


def _receive_from_any(group: Any) -> None:
    """Rank 0 gets what the others send, some of it before it asks, and sends to them while it waits for the rest."""
    n, rank = dist.get_world_size(), dist.get_rank()
    if rank > 0:
        early = dist.isend(torch.full((2,), 10.0 * rank), 0, group)
        tagged = dist.isend(torch.full((2,), 20.0 * rank), 0, group, tag=1)
        answer = _empty(1)
        dist.recv(answer, 0, group)  # waits here, and yet what it has begun to send comes
        dist.send(answer + rank, 0, group)
        for work in (early, tagged):
            work.wait()
        return
    received = _empty(2)
    dist.recv(received, 1, group, tag=1)
    assert received.tolist() == [20.0] * 2
    for tag, others in ((0, set(range(1, n))), (1, set(range(2, n)))):
        while others:
            work = dist.irecv(received, group=group, tag=tag)
            work.wait()
            source = work._source_rank()
            others.remove(source)
            assert received.tolist() == [(10.0 + 10.0 * tag) * source] * 2
    for other in range(1, n):
        dist.send(torch.full((1,), 7.0), other, group)
    for _ in range(1, n):
        sum_ = _empty(1)
        source = dist.recv(sum_, group=group)
        assert sum_.item() == 7.0 + source
    with pytest.raises(dist.DistBackendError, match=r"not done within 0.02 s"):
        dist.irecv(received, group=group).wait(timedelta(milliseconds=20))


def _model() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))


def _train(model: torch.nn.Module, parts: Callable[[torch.Tensor], torch.Tensor]) -> torch.nn.Module:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(4):
        batch = parts(torch.randn(12, 6, generator=torch.Generator().manual_seed(step)))
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    return model


def _my_part(batch: torch.Tensor) -> torch.Tensor:
    return batch.chunk(hvd.size())[hvd.rank()]


def _ddp() -> None:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    def body(_gloo: Any) -> None:
        alone = _train(_model(), lambda batch: batch)
        for view in (False, True):
            ddp = torch.nn.parallel.DistributedDataParallel(_model(), gradient_as_bucket_view=view)
            _same(_train(ddp, _my_part).module, alone, 1e-6)
        hooked = torch.nn.parallel.DistributedDataParallel(_model())
        hooked.register_comm_hook(None, fp16_compress_hook)
        _same(_train(hooked, _my_part).module, alone, 2e-3)
        nested = torch.nn.parallel.DistributedDataParallel(_model())
        nested.register_comm_hook(None, _nested_hook)
        _same(_train(nested, _my_part).module, alone, 1e-6)

    _with_groups(body)


def _nested_hook(_state, bucket):  # type: ignore[no-untyped-def] # DDP compares annotations, which are text here
    """What is to be done with a bucket that has come needs another collective, and waits for it.

    There must be one bucket: collectives that several threads start come in no certain order.
    """

    def average(done: Any) -> torch.Tensor:
        ranks = torch.ones(1)
        dist.all_reduce(ranks, async_op=True).get_future().wait()
        (total,) = done.value()
        result: torch.Tensor = total / ranks
        return result

    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(average)


class _Recomputed(torch.nn.Module):
    """A model of which the middle is recomputed in a backward pass within the backward pass."""

    def __init__(self, of: torch.nn.Module) -> None:
        super().__init__()
        self.layers = of

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        first, *others = self.layers
        rest = torch.nn.Sequential(*others)
        result: torch.Tensor = torch.utils.checkpoint.checkpoint(rest, first(batch), use_reentrant=True)
        return result


def _ddp_of_a_static_graph() -> None:
    """In the first step DDP reduces its buckets, and waits for them, from within a final callback of the engine."""
    from torch.distributed.algorithms.ddp_comm_hooks import DDPCommHookType, register_ddp_comm_hook

    from ciranda.torch.distributed import ddp_comm_hook

    hooks: dict[str, Callable[[Any], None]] = {
        "none": lambda ddp: None,
        "ours": lambda ddp: ddp.register_comm_hook(None, ddp_comm_hook),
        "of Python": lambda ddp: register_ddp_comm_hook(DDPCommHookType.ALLREDUCE, ddp),
        "of C++": lambda ddp: ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE),
    }

    def body(_gloo: Any) -> None:
        alone = _train(_model(), lambda batch: batch)
        for options in ({}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True}):
            for register in hooks.values():
                # Small buckets, of which there are several.
                ddp = torch.nn.parallel.DistributedDataParallel(
                    _model(), static_graph=True, bucket_cap_mb=0.0003, **options
                )
                register(ddp)
                _same(_train(ddp, _my_part).module, alone, 1e-6)
        nested = torch.nn.parallel.DistributedDataParallel(_model(), static_graph=True)
        nested.register_comm_hook(None, _nested_hook)
        _same(_train(nested, _my_part).module, alone, 1e-6)
        recomputed = torch.nn.parallel.DistributedDataParallel(_Recomputed(_model()), static_graph=True)
        _same(_train(recomputed, _my_part).module.layers, alone, 1e-6)
        whole = torch.nn.parallel.DistributedDataParallel(_model(), static_graph=True)
        _same(_train(_Within(whole), _my_part).within.module, alone, 1e-6)  # type: ignore[operator, union-attr]
        for options in ({}, {"static_graph": True}, {"find_unused_parameters": True}):
            _accumulate(options, hooks)

    _with_groups(body)


class _Within(torch.nn.Module):
    """A model whose backward pass is one within the backward pass: its final callbacks run in the midst of that."""

    def __init__(self, within: torch.nn.Module) -> None:
        super().__init__()
        self.within = within

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        given = batch.detach().requires_grad_()
        result: torch.Tensor = torch.utils.checkpoint.checkpoint(self.within, given, use_reentrant=True)
        return result


def _accumulate(options: dict[str, Any], hooks: dict[str, Callable[[Any], None]]) -> None:
    """Steps of one batch, and of two of which the first is not synchronized. (torch wants the first of all to be.)"""
    batches = [torch.randn(12, 6, generator=torch.Generator().manual_seed(seed)) for seed in range(5)]
    alone = _model()
    for batch in batches:
        alone(batch).square().mean().backward()
    for register in hooks.values():
        ddp = torch.nn.parallel.DistributedDataParallel(_model(), **options)
        register(ddp)
        for step, batch in enumerate(batches):
            with ddp.no_sync() if step % 2 else nullcontext():
                ddp(_my_part(batch)).square().mean().backward()
        for mine, other in zip(ddp.module.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, other.grad, atol=1e-6, rtol=1e-5)


def _large_model() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 1200), torch.nn.Tanh(), torch.nn.Linear(1200, 150))


def _ddp_with_our_hook() -> None:
    from ciranda import _basics
    from ciranda.torch.distributed import ddp_comm_hook

    def body(gloo: Any) -> None:
        alone = _train(_large_model(), lambda batch: batch)
        n_bytes = sum(4 * parameter.numel() for parameter in alone.parameters())
        for options in ({}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True}):
            ddp = torch.nn.parallel.DistributedDataParallel(_large_model(), **options)
            ddp.register_comm_hook(None, ddp_comm_hook)
            before = _basics.engine().n_bytes_in_place
            _same(_train(ddp, _my_part).module, alone, 1e-6)
            # Four steps: the buckets are new in the second, if DDP may make them anew, and shared from the next one on.
            n_shared_steps = 3 if "find_unused_parameters" in options else 2
            assert _basics.engine().n_bytes_in_place - before == n_shared_steps * n_bytes
        small = torch.nn.parallel.DistributedDataParallel(_model())
        small.register_comm_hook(dist.new_group(), ddp_comm_hook)
        before = _basics.engine().n_bytes_in_place
        _same(_train(small, _my_part).module, _train(_model(), lambda batch: batch), 1e-6)
        assert _basics.engine().n_bytes_in_place == before
        of_gloo = torch.nn.parallel.DistributedDataParallel(_model(), process_group=gloo)
        of_gloo.register_comm_hook(gloo, ddp_comm_hook)
        with pytest.raises(InvalidArgumentError, match="of the backend ciranda"):
            of_gloo(torch.ones(1, 6)).sum().backward()

    _with_groups(body)


def _fsdp() -> None:
    from torch.distributed.fsdp import fully_shard

    def body(_gloo: Any) -> None:
        alone = _train(_model(), lambda batch: batch)
        sharded: Any = _model()
        mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in (sharded[0], sharded[2], sharded):
            fully_shard(layer, mesh=mesh)
        _train(sharded, _my_part)
        for name, value in sharded.state_dict().items():
            torch.testing.assert_close(value.full_tensor(), alone.state_dict()[name], atol=1e-6, rtol=1e-5)

    _with_groups(body)


def _same(trained: Any, alone: torch.nn.Module, tolerance: float) -> None:
    for name, value in trained.state_dict().items():
        torch.testing.assert_close(value, alone.state_dict()[name], atol=tolerance, rtol=tolerance)


@SIZES
def test_collectives_give_what_gloo_gives(worlds: Any, n_ranks: int) -> None:
    worlds.of(n_ranks).run(_in_the_world, timeout=120)


def test_subgroups(worlds: Any) -> None:
    worlds.of(3).run(_in_subgroups, timeout=120)


def test_what_does_not_fit_is_refused(worlds: Any) -> None:
    worlds.of(2).run(_what_does_not_fit)


@pytest.mark.parametrize("n_ranks", [2, 3])
def test_send_and_receive(worlds: Any, n_ranks: int) -> None:
    worlds.of(n_ranks).run(_between_two, timeout=120)


@pytest.mark.parametrize("n_ranks", [2, 3, 4])
@pytest.mark.parametrize("training", [_ddp, _ddp_with_our_hook, _fsdp])
def test_training_ends_where_one_process_ends(worlds: Any, n_ranks: int, training: Callable[[], None]) -> None:
    worlds.of(n_ranks).run(training, timeout=120)


def _go_by_direct_rounds() -> None:
    """What its thread waits for at once, or DDP at the end of the backward pass, in any group."""
    from ciranda.torch.distributed import ddp_comm_hook

    def body(_gloo: Any) -> None:
        recording = engine().record()

        def expect_one_of(call: Callable[[], object]) -> None:
            recording.read()
            for _ in range(1000):  # the log carries out those for which a rank has to sleep
                call()
                if any(path == "memory" for _, _, path, *_ in recording.read()):
                    return
            raise AssertionError("none of the calls was carried out by a direct round")

        tensor, table = torch.ones(10), torch.ones(10 * dist.get_world_size())
        for group in (None, dist.new_group()):
            expect_one_of(lambda group=group: dist.all_reduce(tensor, group=group))
            expect_one_of(lambda group=group: dist.broadcast(tensor, 0, group=group))
            expect_one_of(lambda group=group: dist.all_gather_into_tensor(table, tensor, group=group))
            expect_one_of(lambda group=group: dist.reduce_scatter_tensor(tensor, table, group=group))
            for hook in (None, ddp_comm_hook):
                ddp = torch.nn.parallel.DistributedDataParallel(_model(), process_group=group)
                if hook is not None:
                    ddp.register_comm_hook(group, hook)
                expect_one_of(lambda ddp=ddp: ddp(torch.ones(3, 6)).sum().backward())

    _with_groups(body)


@pytest.mark.parametrize("n_ranks", [2, 3])
def test_small_calls_go_by_direct_rounds(worlds: Any, n_ranks: int) -> None:
    worlds.of(n_ranks).run(_go_by_direct_rounds, timeout=120)


def _compiled_ddp() -> None:
    def body(_gloo: Any) -> None:
        ddp = torch.nn.parallel.DistributedDataParallel(_model())
        _train(torch.compile(ddp, backend="aot_eager"), _my_part)
        _same(ddp.module, _train(_model(), lambda batch: batch), 1e-6)

    _with_groups(body)


def test_compiled_ddp() -> None:
    with Ranks(2) as ranks:  # torch.compile() changes what follows in a process
        ranks.run(_compiled_ddp, timeout=120)


def test_ddp_of_a_static_graph(worlds: Any) -> None:
    worlds.of(2).run(_ddp_of_a_static_graph, timeout=120)


def _complete_futures_as_they_are_done() -> None:
    def begin(value: float, group: Any = None) -> Any:
        return dist.all_reduce(torch.full((2,), value), group=group, async_op=True).get_future()

    def body(gloo: Any) -> None:
        n, rank = dist.get_world_size(), dist.get_rank()
        groups = [dist.new_group() for _ in range(3)]
        ends, has_begun = threading.Event(), threading.Event()

        def follow(done: Any) -> float:
            has_begun.set()
            assert ends.wait(60)
            return float(done.value()[0][0])

        if rank == 0:
            # Of what is begun first the others begin nothing until the last is complete; and what follows the last
            # does not end until all the rest is complete.
            first = [begin(1.0, group) for group in groups]
            last = begin(2.0)
            followed = last.then(follow)
            dist.barrier(gloo)
            assert last.wait()[0].tolist() == [2.0 * n] * 2
            assert has_begun.wait(60)
            dist.barrier(gloo)
        else:
            dist.barrier(gloo)
            begin(2.0).wait()
            dist.barrier(gloo)
            first = [begin(1.0, group) for group in reversed(groups)]
        for future in reversed(first):
            assert future.wait()[0].tolist() == [n] * 2
        if rank == 0:
            assert not followed.done()
            ends.set()
            assert followed.wait() == 2.0 * n
        for _ in range(5):
            many = [dist.all_reduce(torch.ones(1), async_op=True).get_future() for _ in range(40)]
            assert [future.wait()[0].item() for future in many] == [dist.get_world_size()] * 40
        # A thread that has called ends when it comes back to the queue, which may be after the last future is complete.
        wait_until(lambda: sum(thread.name == "ciranda-futures" for thread in threading.enumerate()) <= 3, 60)
        failing = dist.all_reduce(torch.ones(2 + rank), async_op=True).get_future()
        with pytest.raises(RuntimeError, match="Ranks disagree"):
            failing.wait()

    _with_groups(body)


def _leave_a_future_behind() -> None:
    import ciranda.torch.distributed  # noqa: F401

    dist.init_process_group("ciranda")
    if dist.get_rank() == 0:
        ended: list[str] = []
        dist.all_reduce(torch.ones(2), async_op=True).get_future().add_done_callback(lambda done: ended.append("here"))


def _profiled() -> None:
    from torch.profiler import ProfilerActivity, profile

    def body(_gloo: Any) -> None:
        n = dist.get_world_size()
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as taken:
            work = dist.all_reduce(torch.ones(20, 3), async_op=True)
            work.wait()
            dist.all_gather([torch.empty(5) for _ in range(n)], torch.ones(5))
            ddp = torch.nn.parallel.DistributedDataParallel(_model())
            ddp(torch.ones(2, 6)).sum().backward()
            dist.barrier()
        events = [event for event in taken.events() if event.name.startswith("ciranda:")]
        spans = [event.name for event in events if event.is_async]
        assert spans[:2] == ["ciranda:all_reduce", "ciranda:all_gather"]
        assert spans.count("ciranda:all_reduce") >= 2, "DDP's own"
        assert spans[-1] == "ciranda:barrier"
        begun = [event for event in events if event.name == "ciranda:all_reduce submit"]
        assert begun[0].input_shapes == [[20, 3]]
        # What this thread did lies within: it submitted the collective, waited, and brought the results.
        parts = [event.name for event in events if not event.is_async]
        assert parts[:2] == ["ciranda:all_reduce submit", "ciranda:all_reduce wait"]
        assert {"ciranda:all_gather wait", "ciranda:all_gather finish", "ciranda:barrier wait"} <= set(parts)
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "trace.json"
            taken.export_chrome_trace(str(trace))
            rows = json.loads(trace.read_text())["traceEvents"]
        (first, *_) = (row["args"] for row in rows if row["name"] == "ciranda:all_reduce submit")
        assert (first["Collective name"], first["dtype"], first["Group size"]) == ("all_reduce", "float32", n)
        assert (first["In msg nelems"], first["Out msg nelems"], first["Msg bytes"]) == (60, 60, 240)
        assert first["Process Group Ranks"] == str(list(range(n)))

    _with_groups(body)


def test_profiles_show_collectives(worlds: Any) -> None:
    worlds.of(2).run(_profiled, timeout=120)


@pytest.mark.parametrize("n_ranks", [2, 3])
def test_futures_are_complete_in_the_order_of_completion(worlds: Any, n_ranks: int) -> None:
    worlds.of(n_ranks).run(_complete_futures_as_they_are_done, timeout=120)


def test_what_is_left_of_futures_at_exit() -> None:
    with Ranks(2) as ranks:
        ranks.run(_leave_a_future_behind)


def _fail_in_backward() -> None:
    """What DDP waits for fails, on rank 0, as the other calls something else."""
    from ciranda.torch.distributed import ddp_comm_hook

    def body(gloo: Any) -> None:
        hooks: tuple[Callable[[Any], None], ...] = (
            lambda ddp: None,
            lambda ddp: ddp.register_comm_hook(None, ddp_comm_hook),
            lambda ddp: ddp.register_comm_hook(None, _plain_hook),
        )
        for options in ({}, {"static_graph": True}):
            for register in hooks:
                ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(6, 2), **options)
                register(ddp)
                loss = ddp(torch.ones(1, 6)).sum()
                with pytest.raises(RuntimeError, match="Ranks disagree"):
                    loss.backward() if dist.get_rank() == 0 else dist.all_reduce(torch.ones(3), dist.ReduceOp.MAX)
                if options and dist.get_rank() > 0:  # also of which parameters were used
                    with pytest.raises(RuntimeError, match="Ranks disagree"):
                        dist.all_reduce(torch.ones(3), dist.ReduceOp.MAX)
                dist.barrier(gloo)

    _with_groups(body)


def _plain_hook(_state, bucket):  # type: ignore[no-untyped-def] # DDP compares annotations, which are text here
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])


def test_a_failure_ends_the_backward_pass(worlds: Any) -> None:
    worlds.of(2).run(_fail_in_backward, timeout=120)


def _wait_in_vain() -> None:
    def body(gloo: Any) -> None:
        tensor = torch.ones(3)
        if dist.get_rank() > 0:
            dist.barrier(gloo)
        work = dist.all_reduce(tensor, async_op=True)
        if dist.get_rank() == 0:
            for _ in range(2):
                with pytest.raises(dist.DistBackendError, match=r"not done within 0.02 s"):
                    work.wait(timedelta(milliseconds=20))
            assert not work.is_completed()
            dist.barrier(gloo)
        assert work.wait(timedelta(seconds=60))
        assert tensor.tolist() == [dist.get_world_size()] * 3

    _with_groups(body)


def _with_a_group_of_20_ms(wait_in_vain: Callable[[], None]) -> None:
    """Rank 0 waits for what rank 1 only calls when that is over."""
    import ciranda.torch.distributed  # noqa: F401

    dist.init_process_group("ciranda", timeout=timedelta(milliseconds=20))
    try:
        gloo = dist.new_group(backend="gloo", timeout=timedelta(seconds=60))
        if dist.get_rank() == 0:
            wait_in_vain()
            dist.barrier(gloo)
        else:
            dist.barrier(gloo)
            dist.all_reduce(torch.ones(3), async_op=True).wait(timedelta(seconds=60))
    finally:
        dist.destroy_process_group()


def _wait_as_long_as_the_group() -> None:
    def wait_in_vain() -> None:
        with pytest.raises(dist.DistBackendError, match=r"not done within 0.02 s"):
            dist.all_reduce(torch.ones(3))

    _with_a_group_of_20_ms(wait_in_vain)


def _late_futures() -> None:
    def wait_in_vain() -> None:
        future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
        with pytest.raises(RuntimeError, match=r"not done within 0.02 s"):
            future.wait()

    _with_a_group_of_20_ms(wait_in_vain)


@pytest.mark.parametrize("body", [_wait_in_vain, _wait_as_long_as_the_group, _late_futures])
def test_a_wait_ends_in_time(worlds: Any, body: Callable[[], None]) -> None:
    worlds.of(2).run(body, timeout=120)


def _without_a_store() -> None:
    import ciranda.torch.distributed  # noqa: F401

    def refuse(*_: Any, **__: Any) -> None:
        raise dist.DistNetworkError("no port is free")

    with pytest.MonkeyPatch.context() as patch:
        if hvd.rank() == 0:
            patch.setattr(dist, "TCPStore", refuse)
        with pytest.raises((dist.DistNetworkError, RuntimeError), match="no port is free"):
            dist.init_process_group("ciranda")
    assert not dist.is_initialized()
    _with_groups(lambda _: None)


def test_a_store_that_cannot_be_hosted_fails_on_all_ranks(worlds: Any) -> None:
    worlds.of(2).run(_without_a_store)


SCRIPT = """
import sys, torch, torch.distributed as dist, ciranda.torch.distributed
dist.init_process_group("ciranda")
total = torch.ones(3) * dist.get_rank()
dist.all_reduce(total)
sys.stdout.write(f"total {total.tolist()} {dist.get_backend()}\\n")
dist.destroy_process_group()
"""


@pytest.mark.parametrize("launcher", ["torchrun", "ciranda"])
def test_under_either_launcher(launcher: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    commands = {
        "torchrun": [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "3",
            str(script),
        ],
        "ciranda": [sys.executable, "-m", "ciranda.launch.cli", "run", "-np", "3", sys.executable, str(script)],
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CIRANDA_", "HOROVOD_"))}
    done = subprocess.run(commands[launcher], env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("total [3.0, 3.0, 3.0] ciranda") == 3
