"""The end of groups of torch.distributed: they leave nothing behind, however they end, and others may follow."""

from __future__ import annotations

import os
import signal
import weakref
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from ranks import Ranks, wait_until

import ciranda.torch as hvd
from ciranda._basics import engine
from ciranda.errors import AbortedError, RanksLostError

pytestmark = pytest.mark.multiprocess

MEMBERS = [0, 2]
COUNT = 1 << 18


def _shared() -> int:
    """How many bytes in /dev/shm this process has mapped."""
    total = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "/dev/shm/" in line:
            begin, end = (int(number, 16) for number in line.split()[0].split("-"))
            total += end - begin
    return total


class _Groups:
    """Groups of some ranks, which their members have used, on each rank of a world that has a default group."""

    def __init__(self) -> None:
        import ciranda.torch.distributed  # noqa: F401

        dist.init_process_group("ciranda")
        self._before = _shared()
        self._tensors: list[weakref.ref[torch.Tensor]] = []
        self.is_member = hvd.rank() in MEMBERS

    def use(self, group: Any) -> Any:
        if self.is_member:
            tensor = torch.full((COUNT,), float(hvd.rank()))
            group.allreduce([tensor]).wait()
            assert tensor[-1] == sum(MEMBERS)
            self._tensors.append(weakref.ref(tensor))
        return group

    def new(self) -> Any:
        group = self.use(dist.new_group(MEMBERS))
        assert _shared() > self._before or not self.is_member
        dist.barrier()  # nobody ends it before
        return group

    def check_nothing_is_left(self) -> None:
        wait_until(lambda: _shared() == self._before)
        wait_until(lambda: all(each() is None for each in self._tensors))


def _end_groups() -> None:
    from ciranda.torch.distributed import ProcessGroup

    groups = _Groups()
    for _ in range(3):
        dist.destroy_process_group(groups.new())
    groups.check_nothing_is_left()
    dist.distributed_c10d._abort_process_group(groups.new())
    groups.check_nothing_is_left()
    if groups.is_member:  # what is unknown to torch ends when it is dropped, as destroyed ones do in older versions
        index = MEMBERS.index(hvd.rank())
        groups.use(ProcessGroup(index, MEMBERS, engine().form_set(MEMBERS, 1000)))
    groups.check_nothing_is_left()
    kept = groups.new()
    dist.destroy_process_group()
    groups.check_nothing_is_left()
    if groups.is_member:
        with pytest.raises(AbortedError, match="has left this process set"):
            kept.allreduce([torch.ones(1)]).wait()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum, name="the world goes on") == hvd.size()


def _leave_early() -> None:
    groups = _Groups()
    group = groups.new()
    if groups.is_member:
        tensor = torch.ones(COUNT)
        pending = group.allreduce([tensor])
        if hvd.rank() == MEMBERS[0]:
            dist.destroy_process_group(group)
        pending.wait()  # called before it has left
        assert tensor[-1] == len(MEMBERS)
        with pytest.raises(AbortedError, match=f"rank {MEMBERS[0]} has left this process set .* after the last call"):
            group.allreduce([torch.ones(1)]).wait()
        if hvd.rank() != MEMBERS[0]:
            dist.destroy_process_group(group)
        del tensor, pending
    groups.check_nothing_is_left()
    dist.destroy_process_group()


def _abort_all() -> None:
    groups = _Groups()
    kept = groups.new()
    pending = None if hvd.rank() == 1 else dist.all_reduce(torch.ones(1), async_op=True)
    dist.distributed_c10d._abort_process_group()
    if pending is not None:
        with pytest.raises(AbortedError):
            pending.wait()
    del kept
    hvd.init()
    groups = _Groups()
    dist.destroy_process_group(groups.new())
    groups.check_nothing_is_left()
    dist.destroy_process_group()


@pytest.mark.parametrize("body", [_end_groups, _leave_early, _abort_all])
def test_groups_leave_nothing_behind(worlds: Any, body: Any) -> None:
    worlds.of(3).run(body, timeout=120)


def _lose_a_rank() -> None:
    groups = _Groups()
    group = groups.new()
    dist.barrier()
    if not groups.is_member:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RanksLostError, match="rank 1"):
        dist.all_reduce(torch.ones(1))
    with pytest.raises(RanksLostError, match="rank 1"):
        group.allreduce([torch.ones(1)]).wait()
    groups.check_nothing_is_left()
    dist.destroy_process_group()


def test_a_lost_rank_takes_the_memory_of_groups_with_it() -> None:
    with Ranks(3) as ranks:
        for rank in range(3):
            ranks.start(rank, _lose_a_rank)
        for rank in MEMBERS:
            outcome = ranks.outcome(rank)
            assert outcome.error is None, outcome.traceback
        ranks.is_broken = True


def _form_again() -> None:
    """Groups of the same names: what the last of a name has left in the store is not that of the next."""
    import ciranda.torch.distributed  # noqa: F401

    rank, size = hvd.rank(), hvd.size()
    for step in range(6):
        dist.init_process_group("ciranda")
        for _ in range(2):
            group = dist.new_group([0, 1], use_local_synchronization=True)
            if rank < 2:
                total = torch.ones(1)
                dist.all_reduce(total, group=group)
                assert total == 2
                dist.destroy_process_group(group)
        if rank == 0:
            received = torch.zeros(1)
            for _ in range(size - 1):
                dist.recv(received)
                assert received == step
        else:
            dist.send(torch.full((1,), float(step)), 0)
        dist.destroy_process_group()


def test_groups_of_one_name_follow_each_other(worlds: Any) -> None:
    worlds.of(3).run(_form_again, timeout=120)
