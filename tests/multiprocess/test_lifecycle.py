"""Joining and leaving, again and again; being idle."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks import Ranks, wait_until

import ciranda as hvd
from ciranda.errors import NotSupportedError

pytestmark = pytest.mark.multiprocess


def _identity() -> dict[str, Any]:
    return {
        "rank": hvd.rank(),
        "size": hvd.size(),
        "local_rank": hvd.local_rank(),
        "local_size": hvd.local_size(),
        "cross_rank": hvd.cross_rank(),
        "cross_size": hvd.cross_size(),
        "is_homogeneous": hvd.is_homogeneous(),
    }


def test_identity(world: Ranks) -> None:
    n = world.n_ranks
    expected = {"size": n, "local_size": n, "cross_rank": 0, "cross_size": 1, "is_homogeneous": True}
    assert world.run(_identity) == [{"rank": r, "local_rank": r, **expected} for r in range(n)]


def _n_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _again(times: int) -> list[int]:
    counts, n_threads = [], []
    for i in range(times):
        hvd.init()
        hvd.init()
        assert hvd.allreduce(np.full(10, i), op=hvd.Sum)[0] == i * hvd.size()
        hvd.shutdown()
        hvd.shutdown()
        assert not hvd.is_initialized()
        counts.append((len(os.listdir("/proc/self/fd")), threading.active_count()))
        n_threads.append(_n_threads())
    fewest = min(n_threads[5:])
    wait_until(lambda: _n_threads() <= fewest, must=False)  # one that was joined is listed for a moment
    return [*(max(series[5:]) - min(series[5:]) for series in zip(*counts, strict=True)), _n_threads() - fewest]


def test_init_and_shutdown_fifty_times() -> None:
    with Ranks(3, initialize=False) as ranks:
        growth = ranks.run(_again, 50)
    assert growth == [[0, 0, 0]] * 3, "descriptors or threads accumulate"


_MOST_WHILE_IDLE = 0.001  # of a core


def _cpu_times() -> dict[str, float]:
    """Seconds that each thread of this process has had of a core, by its name and number."""
    taken = {}
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # it has ended
            name = (task / "comm").read_text().strip()
            taken[f"{name} {task.name}"] = int((task / "schedstat").read_text().split()[0]) / 1e9
    return taken


def _cpu_times_while_idle(seconds: float) -> dict[str, float]:
    hvd.allreduce(1.0)
    # Let the spinning after the last operation end.
    end = time.monotonic() + 0.1
    wait_until(lambda: time.monotonic() > end)
    before = _cpu_times()
    threading.Event().wait(seconds)
    return {thread: (taken - before.get(thread, 0.0)) / seconds for thread, taken in _cpu_times().items()}


def _least_cpu_times_while_idle() -> dict[str, float]:
    # Python may tidy up in some of them, and the system charge a little; a thread that looks now and then does in all.
    least: dict[str, float] = {}
    for _ in range(8):
        of_threads = _cpu_times_while_idle(1.0)
        if not least or sum(of_threads.values()) < sum(least.values()):
            least = of_threads
        if hvd.allreduce(sum(least.values()), op=hvd.Max) < _MOST_WHILE_IDLE:  # of all ranks, which so stop together
            break
    return least


def test_idle_ranks_use_no_cpu() -> None:
    with Ranks(2) as ranks:  # of their own: what other tests have loaded may have threads that look now and then
        for of_threads in ranks.run(_least_cpu_times_while_idle):
            busiest = sorted(of_threads.items(), key=lambda each: -each[1])[:3]
            assert sum(of_threads.values()) < _MOST_WHILE_IDLE, str(busiest)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _growth_in_bytes(n_calls: int) -> int:
    array = np.zeros(1, dtype=np.float32)

    def call() -> None:
        hvd.allreduce_(array, name="again")

    for _ in range(n_calls // 20):
        call()
    before = _resident_bytes()
    for _ in range(n_calls):
        call()
    return _resident_bytes() - before


@pytest.mark.parametrize("shares_memory", ["0", "1"])
def test_calls_leave_nothing_behind(shares_memory: str) -> None:
    with Ranks(2, env={"CIRANDA_SHARED_MEMORY": shares_memory}) as ranks:
        growth = ranks.run(_growth_in_bytes, 40_000, timeout=200)
    assert max(growth) < 500_000, f"bytes that ranks have grown by in 40,000 calls: {growth}"


def _import_and_exit_without_shutdown() -> None:
    import sys

    hvd.allreduce(1.0)
    sys.stdout.flush()


def test_exit_without_shutdown_is_clean() -> None:
    with Ranks(3) as ranks:
        ranks.run(_import_and_exit_without_shutdown)
    # close() has checked the exit codes, and that nobody had to be killed.


def _numbers() -> tuple[object, ...]:
    here = (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size())
    return *here, hvd.is_initialized(), hvd.global_process_set.rank(), hvd.global_process_set.size()


def _use_after_fork() -> int:
    numbers = _numbers()
    of_one = hvd.add_process_set([1])
    members = (of_one.ranks, of_one.included(), of_one.rank())
    pid = os.fork()
    if pid == 0:
        if _numbers() != numbers or (of_one.ranks, of_one.included(), of_one.rank()) != members:
            os._exit(1)
        try:
            hvd.allreduce(1.0)
        except ValueError as error:
            os._exit(7 if f"forked by rank {numbers[0]}" in str(error) else 2)
        os._exit(3)
    _, status = os.waitpid(pid, 0)
    hvd.allreduce(1.0)
    hvd.remove_process_set(of_one)
    return os.waitstatus_to_exitcode(status)


def test_a_forked_child_knows_its_parents_numbers_and_is_no_rank(worlds: Any) -> None:
    assert worlds.of(2).run(_use_after_fork) == [7, 7]


def _init_in_a_forked_child() -> int:
    pid = os.fork()
    if pid == 0:
        try:
            hvd.init()
        except NotSupportedError as error:
            os._exit(7 if "forked by a rank" in str(error) else 8)
        os._exit(hvd.size())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_cannot_take_its_parents_place(worlds: Any) -> None:
    assert worlds.of(2).run(_init_in_a_forked_child) == [7, 7]


def test_a_child_of_a_world_of_one_can_be_another(worlds: Any) -> None:
    assert worlds.of(1).run(_init_in_a_forked_child) == [1]


def _global_set() -> None:
    assert hvd.global_process_set.size() == hvd.size()
    assert hvd.global_process_set.rank() == hvd.rank()
    assert hvd.global_process_set.included()


def test_the_global_process_set_is_everybody(world: Ranks) -> None:
    world.run(_global_set)


def _init_with_an_interrupt() -> None:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    hvd.init()


def _interrupted_init() -> None:
    with pytest.raises(KeyboardInterrupt):
        _init_with_an_interrupt()
    assert not hvd.is_initialized()


@pytest.mark.parametrize("waits_for", ["store", "peers"])
def test_ctrl_c_interrupts_init(waits_for: str) -> None:
    nobody = {"CIRANDA_STORE": "127.0.0.1:1"} if waits_for == "store" else {}

    with Ranks(2, env={"CIRANDA_START_TIMEOUT": "600", **nobody}, initialize=False) as ranks:
        ranks.run(_interrupted_init, on=[0])


def test_a_rank_that_never_comes_is_named() -> None:
    def alone() -> str:
        with pytest.raises(hvd.errors.TimeoutError) as caught:
            hvd.init()
        return str(caught.value)

    with Ranks(3, env={"CIRANDA_START_TIMEOUT": "1"}, initialize=False) as ranks:
        for message in ranks.run(alone, on=[0, 2]):
            assert "1" in message


class _TakesLong:
    """As a module that is imported: three seconds on its way into a rank."""

    def __reduce__(self) -> tuple[Any, ...]:
        return time.sleep, (3.0,)


def test_a_time_limit_of_a_test_counts_from_when_its_ranks_have_loaded_what_they_need(worlds: Any) -> None:
    assert worlds.of(2).run(lambda nothing: nothing, _TakesLong(), timeout=2.0) == [None, None]
