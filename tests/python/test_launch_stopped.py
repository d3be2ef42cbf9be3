"""Which ranks count as stopped, of real processes. Looks follow one another at once: only their number counts."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ciranda.launch.processes import send_signal
from ciranda.launch.stopped import StoppedRanks, limit_of

_PTRACE_ATTACH = 16
LIMIT = 4.0
FEWEST_LOOKS = 5  # the first is the beginning, the others follow it by a second each


class Ranks:
    """Processes that sleep, by rank, and what looks at them find."""

    def __init__(self, n_ranks: int) -> None:
        self._processes = [subprocess.Popen(["sleep", "600"]) for _ in range(n_ranks)]
        self._stopped = StoppedRanks(LIMIT)

    def stop(self, rank: int) -> None:
        self._signal(rank, signal.SIGSTOP, "T")

    def go_on(self, rank: int) -> None:
        self._signal(rank, signal.SIGCONT, "S")

    def attach(self, rank: int) -> None:
        """As a debugger does."""
        assert ctypes.CDLL(None).ptrace(_PTRACE_ATTACH, self._processes[rank].pid, None, None) == 0
        self._await(rank, "t")

    def look(self, n_looks: int, *sizes: int) -> list[list[int]]:
        """``sizes``: of the ranks' worlds, by default without others."""
        pids = {rank: process.pid for rank, process in enumerate(self._processes)}
        of_rank = dict(enumerate(sizes or [len(pids)] * len(pids)))
        return [self._stopped.look(pids, of_rank) for _ in range(n_looks)]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def _signal(self, rank: int, number: int, state: str) -> None:
        send_signal(self._processes[rank].pid, number)
        self._await(rank, state)

    def _await(self, rank: int, state: str) -> None:
        while Path(f"/proc/{self._processes[rank].pid}/stat").read_text().rpartition(")")[2].split()[0] != state:
            time.sleep(0.001)


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    started = Ranks(3)
    try:
        yield started
    finally:
        started.close()


def test_one_that_stays_stopped_is_found(ranks: Ranks) -> None:
    ranks.stop(1)
    assert ranks.look(FEWEST_LOOKS) == [[]] * (FEWEST_LOOKS - 1) + [[1]]


def test_a_stop_begins_anew_after_a_break(ranks: Ranks) -> None:
    ranks.stop(1)
    assert ranks.look(FEWEST_LOOKS - 1) == [[]] * (FEWEST_LOOKS - 1)
    ranks.go_on(1)
    assert ranks.look(1) == [[]]
    ranks.stop(1)
    assert ranks.look(FEWEST_LOOKS) == [[]] * (FEWEST_LOOKS - 1) + [[1]]


def test_time_that_the_agent_has_slept_through_does_not_count(monkeypatch: pytest.MonkeyPatch, ranks: Ranks) -> None:
    ranks.stop(1)
    assert ranks.look(2) == [[], []]
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 3600)
    assert ranks.look(1) == [[]]


def test_a_debugger_is_let_alone(ranks: Ranks) -> None:
    ranks.attach(1)
    assert ranks.look(2 * FEWEST_LOOKS) == [[]] * 2 * FEWEST_LOOKS


def test_who_pauses_all_ranks_of_a_world_means_it(ranks: Ranks) -> None:
    for rank in range(3):
        ranks.stop(rank)
    assert ranks.look(2 * FEWEST_LOOKS) == [[]] * 2 * FEWEST_LOOKS
    assert ranks.look(2 * FEWEST_LOOKS, 2, 2, 0) == [[]] * 2 * FEWEST_LOOKS, "the third one has not joined yet"
    ranks.go_on(0)
    assert ranks.look(FEWEST_LOOKS) == [[]] * (FEWEST_LOOKS - 1) + [[1, 2]]


@pytest.mark.parametrize("sizes", [(4, 4, 4), (2, 0, 0), (0, 0, 0)], ids=["others wait", "one waits", "no world"])
def test_all_ranks_of_a_host_are_not_all_of_the_world(ranks: Ranks, sizes: tuple[int, ...]) -> None:
    for rank in range(3):
        ranks.stop(rank)
    assert ranks.look(FEWEST_LOOKS, *sizes) == [[]] * (FEWEST_LOOKS - 1) + [[0, 1, 2]]


@pytest.mark.parametrize(("text", "seconds"), [(None, 60), (b"", 60), (b"7.5", 7.5), (b"0", 0), (b"soon", 60)])
def test_the_limit(text: bytes | None, seconds: float) -> None:
    assert limit_of({} if text is None else {b"CIRANDA_STOPPED_SECONDS": text}) == seconds
