"""Ranks that die, stop, leave, or are interrupted. Nobody hangs, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from ranks import Ranks, cpu_seconds, until_a_call_waits, wait_until

import ciranda as hvd
from ciranda.errors import AbortedError, HorovodInternalError, RanksLostError

pytestmark = pytest.mark.multiprocess


def _wait_for_the_lost(name: str, count: int = 1000) -> str:
    """Allreduce until it fails; return how it did. Where nobody notices it does after ten minutes, of another error."""
    try:
        while True:
            hvd.allreduce(np.ones(count, np.float32), name=name)
    except RanksLostError as error:
        return str(error)


def _later_calls_fail_too() -> str:
    with pytest.raises(RanksLostError) as caught:
        hvd.allreduce(np.ones(3), name="later")
    with pytest.raises(RanksLostError):
        hvd.barrier()
    hvd.shutdown()
    return str(caught.value)


@pytest.mark.parametrize("count", [10, 2_000_000])
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_sigkill_of_a_rank(victim: int, count: int) -> None:
    with Ranks(3) as ranks:
        others = [rank for rank in range(3) if rank != victim]
        for rank in range(3):
            ranks.start(rank, _wait_for_the_lost, "busy", count)
        # In the middle of it: some operations have gone well.
        wait_until(lambda: cpu_seconds(ranks.processes[victim].pid) > 0.5)
        ranks.signal(victim, signal.SIGKILL)
        failures = [ranks.outcome(rank).value for rank in others]
        later = ranks.run(_later_calls_fail_too, on=others)
    assert all(f"rank {victim}" in message for message in [*later, *failures])


def _become_another_program() -> None:
    os.execv("/bin/sleep", ["sleep", "1000"])


def test_a_rank_that_becomes_another_program() -> None:
    with Ranks(3) as ranks:
        for rank in (0, 2):
            ranks.start(rank, _wait_for_the_lost, "busy")
        ranks.start(1, _become_another_program)
        failures = [ranks.outcome(rank).value for rank in (0, 2)]
        ranks.signal(1, signal.SIGKILL)
    assert all("rank 1" in message for message in failures)


def test_sigkill_of_a_rank_that_nobody_waits_for_yet() -> None:
    with Ranks(2) as ranks:
        ranks.signal(1, signal.SIGKILL)
        ranks.processes[1].wait()
        (outcome,) = ranks.outcomes(_wait_for_the_lost, "idle", on=[0])
    assert "rank 1" in outcome.value


def _fork_a_sleeper() -> int:
    """As a data loader does: a child that holds copies of every descriptor."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    return pid


def test_sigkill_of_a_rank_with_forked_children() -> None:
    with Ranks(2) as ranks:
        (child,) = ranks.run(_fork_a_sleeper, on=[1])
        try:
            ranks.start(0, _wait_for_the_lost, "forked")
            ranks.signal(1, signal.SIGKILL)
            assert "rank 1" in ranks.outcome(0).value
        finally:
            os.kill(child, signal.SIGKILL)


def test_sigstop_and_sigcont() -> None:
    def reduce() -> float:
        return sum(float(hvd.allreduce(np.ones(5000), op=hvd.Sum)[7]) for _ in range(3000))

    with Ranks(2) as ranks:
        for rank in range(2):
            ranks.start(rank, reduce)
        for _ in range(3):
            ranks.signal(1, signal.SIGSTOP)
            wait_until(lambda: _state(ranks.processes[1].pid) == "T")
            # Long enough for rank 0 to have gone to sleep over it.
            wait_until(lambda: _state(ranks.processes[0].pid) == "S", must=False, seconds=1)
            ranks.signal(1, signal.SIGCONT)
            wait_until(lambda: _state(ranks.processes[1].pid) != "T")
        assert [ranks.outcome(rank).value for rank in range(2)] == [6000.0, 6000.0]


_LARGE_STEPS = {
    "CIRANDA_SLOT_BYTES": str(16 << 20),  # so much is combined without a look at anything else
    "CIRANDA_STALL_WARNING_SECONDS": "3",
    "CIRANDA_STALL_SHUTDOWN_SECONDS": "3",
}


def _combine_in_shared_memory_until_it_fails() -> str:
    """Every call changes all of the array on all ranks, each of which writes a third of it to all."""
    changed = hvd.empty(6 << 20, np.int64)
    other = hvd.empty(100_000, np.int64)
    changed[:] = 1
    other[:] = hvd.rank()
    hvd.kept_by_this_test = changed, other
    try:
        while True:
            hvd.allreduce_(changed, op=hvd.Sum, name="busy")
    except HorovodInternalError as error:
        hvd.kept_by_this_test += (changed.copy(),)
        return str(error)


def _is_half_written() -> bool:
    """The last rank's third has some of the last call, and the rest of the one before."""
    third = hvd.kept_by_this_test[2][4 << 20 :]
    return bool((third != third[0]).any())


def _number_of_changes() -> tuple[int, int]:
    """Of what a rank that was given up must have left alone; and it must be of use."""
    changed, other, before = hvd.kept_by_this_test
    n_changes = int((changed != before).sum()), int((other != hvd.rank()).sum())
    changed += 1
    assert (changed == before + 1).all()
    return n_changes


def _stop_one_in_the_middle() -> bool:
    with Ranks(3, env=_LARGE_STEPS) as ranks:
        for rank in range(3):
            ranks.start(rank, _combine_in_shared_memory_until_it_fails)
        busy_before = cpu_seconds(ranks.processes[2].pid)
        wait_until(lambda: cpu_seconds(ranks.processes[2].pid) > busy_before + 0.3, seconds=60)
        ranks.signal(2, signal.SIGSTOP)
        for rank in range(2):
            assert "rank 2" in ranks.outcome(rank).value
        is_in_the_middle = all(ranks.run(_is_half_written, on=[0, 1]))
        ranks.signal(2, signal.SIGCONT)
        ranks.outcome(2)  # all that it was about to write is written
        assert ranks.run(_number_of_changes, on=[0, 1]) == [(0, 0), (0, 0)]
        return is_in_the_middle


def test_a_rank_that_was_given_up_goes_on_and_writes_to_nobody() -> None:
    """It is stopped while it writes to the others' memory, which is most of what it does, so that is seen soon."""
    assert any(_stop_one_in_the_middle() for _ in range(10))


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _wait_for_the_one_that_leaves() -> str:
    if hvd.rank() == 1:
        hvd.shutdown()
        return ""
    with pytest.raises(AbortedError) as caught:
        hvd.allreduce(np.ones(3), name="left alone")
    with pytest.raises(HorovodInternalError):
        hvd.allreduce(np.ones(3), name="still alone")
    return str(caught.value)


def test_clean_exit_of_one_rank_while_others_wait() -> None:
    with Ranks(3) as ranks:
        messages = ranks.run(_wait_for_the_one_that_leaves)
        assert "rank 1" in messages[0]
        assert "rank 1" in messages[2]


def _interrupt_the_wait() -> None:
    until_a_call_waits()
    os.kill(os.getpid(), signal.SIGINT)


def _interrupted() -> None:
    threading.Thread(target=_interrupt_the_wait).start()
    with pytest.raises(KeyboardInterrupt):
        hvd.allreduce(np.ones(3), name="never")
    hvd.shutdown()


def test_ctrl_c_interrupts_a_wait() -> None:
    with Ranks(2) as ranks:
        ranks.run(_interrupted, on=[0])


def _segments() -> set[str]:
    """Those that have a name; other programs may make files there at any time."""
    return {path.name for path in Path("/dev/shm").glob("ciranda-*")}


def _use_a_set() -> None:
    even = hvd.add_process_set(range(0, hvd.size(), 2))
    for process_set in (hvd.global_process_set, even):
        if process_set.included():
            hvd.allreduce(1.0, process_set=process_set)


def test_nothing_is_left_behind() -> None:
    before = _segments()
    ranks = Ranks(4)
    ranks.run(_use_a_set)
    assert _segments() <= before, "a segment keeps its name while it is used"
    ranks.signal(2, signal.SIGKILL)
    ranks.close(expect_clean=False)
    assert _segments() <= before
    assert all(process.poll() is not None for process in ranks.processes)
