"""Which rank the launcher warns of, and when."""

from __future__ import annotations

import pytest

from ciranda.launch.rates import Counters
from ciranda.launch.stragglers import Stragglers


class Job:
    """Counters of four ranks, of which each window of 30 steps adds the seconds that others waited for each."""

    def __init__(self) -> None:
        self.seconds = 10.0
        self.steps = 0
        self.held_up = [0.0, 0.0, 0.0, 0.0]
        self.cpu = 0.0
        self.pid = 100

    def counters(self) -> Counters:
        told = {"host": "h", "runs": True, "memory_bytes": 1, "cpu_seconds": self.cpu, "warning": ""}
        of_all = {"seconds": self.seconds, "steps": self.steps, "waited_seconds": 0.0}
        held_up = {str(last): int(seconds * 1e9) for last, seconds in enumerate(self.held_up)}
        return {
            rank: {**told, **of_all, "rank": rank, "pid": self.pid + rank,
                   "held_up_ns": held_up if rank == 0 else {}}
            for rank in range(4)
        }  # fmt: skip

    def window(self, *held_up: float, n_steps: int = 30, cpu: float = 0.0) -> Counters:
        self.seconds += 1.0
        self.steps += n_steps
        self.cpu += cpu
        self.held_up = [before + more for before, more in zip(self.held_up, held_up, strict=True)]
        return self.counters()


def told(stragglers: Stragglers, counters: Counters) -> str:
    return str(stragglers.look(counters) or "")


def test_a_straggler_is_named_once_and_again_after_a_change() -> None:
    job, stragglers = Job(), Stragglers()
    assert told(stragglers, job.counters()) == ""
    assert told(stragglers, job.window(0, 0, 0.2, 0)) == "", "once may be chance"
    said = told(stragglers, job.window(0, 0, 0.2, 0, cpu=1.0))
    assert said.startswith("rank 2 (h) is a straggler: in the last 30 steps the others waited for it 20% of the time; ")
    assert "computed (kept 100% of a core busy)" in said
    for _ in range(3):
        assert told(stragglers, job.window(0, 0, 0.2, 0)) == ""
    assert told(stragglers, job.window(0.3, 0, 0, 0)) == ""
    assert told(stragglers, job.window(0.3, 0, 0, 0)).startswith("rank 0 (h) is a straggler")
    for _ in range(2):
        assert told(stragglers, job.window(0, 0, 0, 0)) == ""
    assert told(stragglers, job.window(0.3, 0, 0, 0)) == ""
    assert "slept" in told(stragglers, job.window(0.3, 0, 0, 0))


def test_looks_between_two_judgements_are_about_nothing() -> None:
    """They tell what a suspicious rank does: the signs of a process come with the counters."""
    job, stragglers = Job(), Stragglers(n_seconds=2.0)
    stragglers.look(job.counters())
    assert not stragglers.is_suspicious
    for n_windows in (1, 2):
        assert told(stragglers, job.window(0, 0, 0.2, 0)) == "", "of one second"
        assert stragglers.is_suspicious == (n_windows == 2)
        said = told(stragglers, job.window(0, 0, 0.2, 0))
        assert said.startswith("rank 2 (h) is a straggler: in the last 60 steps" if n_windows == 2 else "")
        assert stragglers.is_suspicious == (n_windows == 1), "until it is named"
    assert told(stragglers, job.window(0, 0, 0, 0)) == told(stragglers, job.window(0, 0, 0, 0)) == ""
    assert not stragglers.is_suspicious


@pytest.mark.parametrize("held_up", [(0.3, 0.3, 0.3, 0.3), (0.05, 0.0, 0.0, 0.0), (0.35, 0.3, 0.0, 0.0)])
def test_ranks_that_are_late_in_turn_are_none(held_up: tuple[float, ...]) -> None:
    job, stragglers = Job(), Stragglers()
    for _ in range(5):
        assert told(stragglers, job.window(*held_up)) == ""


def test_a_judgement_needs_steps_of_one_world() -> None:
    job, stragglers = Job(), Stragglers()
    for _ in range(9):
        assert told(stragglers, job.window(0, 0, 0.9, 0, n_steps=5)) == ""
    job.pid, job.seconds, job.steps, job.held_up = 200, 1.0, 0, [0.0] * 4
    for _ in range(2):
        assert told(stragglers, job.window(0, 0, 0.9, 0)) == ""
    assert told(stragglers, job.window(0, 0, 0.9, 0)) != ""
    assert Stragglers().look({}) is None
    starting = {rank: {key: value for key, value in of.items() if key != "pid"} for rank, of in job.counters().items()}
    assert Stragglers().look(starting) is None


def test_the_same_number_of_another_process_is_named_again() -> None:
    """In an elastic job, whose ranks change their numbers."""
    job, stragglers = Job(), Stragglers()
    stragglers.look(job.counters())
    for _ in range(2):
        for _ in range(2):
            said = told(stragglers, job.window(0, 0, 0.2, 0))
        assert said.startswith("rank 2 (h) is a straggler")
        job.pid += 1
        assert told(stragglers, job.window(0, 0, 0.2, 0)) == ""
