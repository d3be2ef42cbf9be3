"""How a process ends while some of its threads are in collectives."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from ranks import Ranks, until_a_call_waits

import ciranda as hvd

pytestmark = pytest.mark.multiprocess

_SECONDS = 120.0  # what takes less than two on an idle machine; without an end of its own it is ten minutes


def _reduce_for_ever() -> None:
    """As Ranks' processes leave one after the other, some see others leave."""
    while True:
        try:
            hvd.allreduce(np.ones(4), name=threading.current_thread().name)
        except (hvd.errors.RanksLostError, hvd.errors.AbortedError):
            threading.Event().wait()


def _start_daemons() -> None:
    for kind in range(3):
        threading.Thread(target=_reduce_for_ever, name=f"daemon {kind}", daemon=True).start()
    wait_for_nobody = threading.Thread(target=lambda: hvd.allreduce(1.0, name=f"of {hvd.rank()}"), daemon=True)
    wait_for_nobody.start()
    hvd.barrier()


@pytest.mark.parametrize("attempt", range(3))
def test_daemon_threads_in_collectives_do_not_end_a_process_that_has_finished(attempt: int) -> None:
    """close() looks at the exit codes: they abort() about half of such processes if the interpreter unwinds them."""
    with Ranks(4) as ranks:
        ranks.run(_start_daemons, timeout=_SECONDS)


def _wait_for_nobody() -> None:
    try:
        hvd.allreduce(1.0, name=f"of {hvd.rank()}")
    except hvd.errors.AbortedError:
        os.write(2, b"the collective was given up")


def _end(how: str) -> None:
    hvd.kept = threading.Thread(target=_wait_for_nobody)  # type: ignore[attr-defined]
    hvd.kept.start()  # type: ignore[attr-defined]
    until_a_call_waits()
    if how == "exit":
        sys.exit(3)
    raise BaseException("which ends the main thread")


@pytest.mark.parametrize(("how", "code"), [("exit", 3), ("raise", 1)])
def test_a_thread_in_a_collective_does_not_keep_a_process_whose_main_thread_has_ended(how: str, code: int) -> None:
    with Ranks(2) as ranks:
        ranks.start(0, _end, how)
        assert ranks.processes[0].wait(_SECONDS) == code
        assert "the collective was given up" in ranks.stderr(0)
        ranks.is_broken = True  # rank 1 heard of it


def _start_thread_that_goes_on() -> None:
    def go_on() -> None:
        while threading.main_thread().is_alive():
            time.sleep(0.001)
        total = hvd.allreduce(np.ones(1), op=hvd.Sum, name="after the main thread")
        os.write(2, b"the sum is %d" % total[0])

    threading.Thread(target=go_on).start()


def test_a_thread_goes_on_after_a_main_thread_that_has_come_to_its_end() -> None:
    with Ranks(2) as ranks:
        ranks.run(_start_thread_that_goes_on, timeout=_SECONDS)
        ranks.end()
        for rank, process in enumerate(ranks.processes):
            assert process.wait(_SECONDS) == 0
            assert "the sum is 2" in ranks.stderr(rank)


def _fork_while_a_thread_waits() -> int:
    threading.Thread(target=_wait_for_nobody, daemon=True).start()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            import atexit

            atexit._run_exitfuncs()
            code = 7
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def test_a_forked_child_ends_without_its_parents_threads() -> None:
    with Ranks(2) as ranks:
        assert ranks.run(_fork_while_a_thread_waits, timeout=_SECONDS) == [7, 7]
        for rank in range(2):
            ranks.signal(rank, signal.SIGKILL)


def _record_what_is_never_done(path: str) -> None:
    hvd.start_timeline(path)
    hvd.allreduce(np.ones(1), name="done")
    hvd.kept = hvd.allreduce_async(1.0, name=f"of {hvd.rank()}")  # type: ignore[attr-defined]


def test_a_timeline_is_complete_when_the_process_ends(tmp_path: Path) -> None:
    path = tmp_path / "timeline"
    with Ranks(2) as ranks:
        ranks.run(_record_what_is_never_done, str(path), timeout=_SECONDS)
    names = {event["args"].get("name") for event in json.loads(path.read_text())}
    assert "allreduce.done" in names


def _record_where_there_is_no_room() -> list[float]:
    hvd.start_timeline("/dev/full")
    sums = [float(hvd.allreduce(np.ones(1), op=hvd.Sum, name=f"number {i}")[0]) for i in range(3)]
    hvd.stop_timeline()
    return sums


def test_a_timeline_that_cannot_be_written_fails_nothing_and_is_said() -> None:
    with Ranks(2) as ranks:
        assert ranks.run(_record_where_there_is_no_room, timeout=_SECONDS) == [[2.0] * 3] * 2
        said = "the timeline /dev/full is incomplete, and goes no further: No space left on device"
        assert ranks.stderr(0).count(f"ciranda: warning: [rank 0] {said}") == 1
        assert said not in ranks.stderr(1)
