"""The backend of torch.distributed must give what gloo gives, alone, in subgroups, in DDP and in FSDP2."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist

import ciranda.torch as hvd
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
    torch.testing.assert_close(mean, total / n)
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
        # The second in no order, the third once more the same: a group of its own.
        for ranks in ([0, 2], [2, 0, 1], [0, 2], [1, 2]):
            ours, gloo = dist.new_group(ranks), dist.new_group(ranks, backend="gloo")
            if dist.get_rank() in ranks:
                _collectives(ours, gloo, dist.get_process_group_ranks(ours))

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
        with pytest.raises(NotSupportedError, match="source"):
            dist.recv(torch.zeros(1))
        with pytest.raises(NotSupportedError, match="is not supported by the backend ciranda"):
            dist.all_reduce(torch.zeros(1), op=dist._make_nccl_premul_sum(2.0))

    _with_groups(body)


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
    """What is to be done with a bucket that has come needs another collective, and waits for it."""

    def average(done: Any) -> torch.Tensor:
        ranks = torch.ones(1)
        dist.all_reduce(ranks, async_op=True).get_future().wait()
        (total,) = done.value()
        result: torch.Tensor = total / ranks
        return result

    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(average)


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
def test_collectives_give_what_gloo_gives(circles: Any, n_ranks: int) -> None:
    circles.of(n_ranks).run(_in_the_world, timeout=60)


def test_subgroups(circles: Any) -> None:
    circles.of(3).run(_in_subgroups, timeout=60)


@pytest.mark.parametrize("n_ranks", [2, 3])
def test_send_and_receive(circles: Any, n_ranks: int) -> None:
    circles.of(n_ranks).run(_between_two, timeout=60)


@pytest.mark.parametrize("n_ranks", [2, 3, 4])
@pytest.mark.parametrize("training", [_ddp, _ddp_with_our_hook, _fsdp])
def test_training_ends_where_one_process_ends(circles: Any, n_ranks: int, training: Callable[[], None]) -> None:
    circles.of(n_ranks).run(training, timeout=60)


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


def _wait_as_long_as_the_group() -> None:
    import ciranda.torch.distributed  # noqa: F401

    dist.init_process_group("ciranda", timeout=timedelta(milliseconds=20))
    try:
        gloo = dist.new_group(backend="gloo", timeout=timedelta(seconds=60))
        if dist.get_rank() == 0:
            with pytest.raises(dist.DistBackendError, match=r"not done within 0.02 s"):
                dist.all_reduce(torch.ones(3))
            dist.barrier(gloo)
        else:
            dist.barrier(gloo)
            dist.all_reduce(torch.ones(3), async_op=True).wait(timedelta(seconds=60))
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("body", [_wait_in_vain, _wait_as_long_as_the_group])
def test_a_wait_ends_in_time(circles: Any, body: Callable[[], None]) -> None:
    circles.of(2).run(body, timeout=60)


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
    done = subprocess.run(commands[launcher], env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("total [3.0, 3.0, 3.0] ciranda") == 3
