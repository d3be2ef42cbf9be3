"""What the engine records of calls: stages in their order, on a rank and across ranks; and no call goes another way."""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from ranks import Ranks

import ciranda as hvd
from ciranda._basics import engine
from ciranda.bench import stages

pytestmark = pytest.mark.multiprocess

Calls = list[tuple[str, list[int]]]
COUNTS = (1, 1, 1, 4096, 300_000)  # the first two of a name are agreed on otherwise than those that follow


def _recorded_calls() -> tuple[int, Calls, int, int]:
    """What is recorded of a few calls, between two looks at the clock; and how many are read after the end."""
    recording = engine().record()
    begin = time.monotonic_ns()
    for count in COUNTS:
        hvd.allreduce_(np.ones(count, np.float32), name=f"recorded.{count}")
    hvd.synchronize(hvd.allreduce_async_(np.ones(3), name="not.blocking"))
    rows = recording.read()
    end = time.monotonic_ns()
    assert {(collective, outcome, lane) for _, collective, _, outcome, _, _, lane, _ in rows} == {("allreduce", 0, 0)}
    assert [n_bytes for *_, n_bytes, _, _, _ in rows] == [4 * count for count in COUNTS] + [24]
    recording.stop()
    hvd.barrier()
    assert recording.n_lost == 0
    return begin, [(row[0], stages.of_blocking_call(row[-1])) for row in rows], end, len(recording.read())


def test_the_stages_of_calls(world: Ranks) -> None:
    precision_ns = 100  # with which the clocks of two processes are told
    answers = world.run(_recorded_calls)
    for begin, calls, end, n_more in answers:
        assert [name for name, _ in calls] == [*(f"recorded.{count}" for count in COUNTS), "not.blocking"]
        flat = [begin, *(moment for _, passed in calls for moment in passed), end]
        assert all(earlier <= later + precision_ns for earlier, later in pairwise(flat))
        assert n_more == 0
    for same in zip(*(calls for _, calls, _, _ in answers), strict=True):
        last_ready = max(ready for _, (_, _, ready, _, _) in same)
        assert all(agreed >= last_ready - precision_ns for _, (_, _, _, agreed, _) in same)


def _ways(path: str) -> list[Counter[str]]:
    """How many blocking calls went which way: while recorded, and while a timeline is written as well."""
    found = []
    buffer = np.ones(1, np.float32)
    for timeline in (None, path):
        hvd.barrier()
        if timeline is not None:
            hvd.start_timeline(timeline)
        for _ in range(20):
            hvd.allreduce_(buffer, name="again")
        recording = engine().record()
        for _ in range(500):
            hvd.allreduce_(buffer, name="again")
        found.append(Counter(row[2] for row in recording.read()))
    hvd.stop_timeline()
    return found


def test_a_timeline_leaves_calls_on_their_way(tmp_path: Path) -> None:
    with Ranks(2, env={"CIRANDA_SPIN_MICROSECONDS": "1e6"}) as ranks:  # none leaves its round to sleep
        answers = ranks.run(_ways, str(tmp_path / "timeline"))
    for ways in answers:
        for found in ways:
            assert found.total() == 500
            assert found["direct"] + found["repeated"] + found["memory"] > 250, found
