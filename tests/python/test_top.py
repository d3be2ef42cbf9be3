"""What `ciranda top` makes of two looks at the counters."""

from __future__ import annotations

import json
from typing import Any

from ciranda.launch import top
from ciranda.launch.rates import rows

CALLS = {"calls": 0, "failed": 0, "bytes": 0, "agree_seconds": 0.0, "move_seconds": 0.0}


def rank(number: int, seconds: float, **values: Any) -> dict[str, Any]:
    counters = {"pid": 100 + number, "seconds": seconds, "steps": 0, "waited_seconds": 0.0, "collectives": {}}
    told = {"rank": number, "host": "h", "runs": True, "memory_bytes": 1 << 20, "cpu_seconds": 0.0, "warning": ""}
    return {**counters, **told, **values}


def calls(n: int, n_bytes: int) -> dict[str, Any]:
    return {"allreduce": {**CALLS, "calls": n, "bytes": n_bytes}}


def test_rates_are_those_between_the_looks() -> None:
    before = {0: rank(0, 10.0, steps=100, collectives=calls(1000, 10**9), waited_seconds=5.0)}
    after = {0: rank(0, 12.0, steps=110, collectives=calls(3000, 5 * 10**9), waited_seconds=6.0)}
    (row,) = rows(before, after)
    assert (row.steps_per_second, row.calls_per_second, row.bytes_per_second) == (5.0, 1000.0, 2e9)
    assert row.waited == 0.5
    assert row.state == "runs"


def test_whom_the_others_waited_for() -> None:
    before = {n: rank(n, 10.0) for n in range(3)}
    after = {
        0: rank(0, 11.0, held_up_seconds={"2": 0.25}, own_waits_seconds={"2": 0.25, "1": 0.1}),
        1: rank(1, 11.0, own_waits_seconds={"2": 0.5}),
        2: rank(2, 11.0),
    }
    found = rows(before, after)
    assert [round(row.waited_for, 6) for row in found] == [0.0, 0.1, 0.75], "the longest of waits side by side"


def test_another_world_begins_anew() -> None:
    before = {0: rank(0, 100.0, steps=1000)}
    after = {0: rank(0, 2.0, steps=10)}
    assert rows(before, after)[0].steps_per_second == 5.0


def test_waits_of_another_world_do_not_count() -> None:
    """In an elastic job the same process goes on in the next world, where its counters begin at 0."""
    before = {0: rank(0, 100.0, held_up_seconds={"1": 50.0}), 1: rank(1, 100.0)}
    after = {0: rank(0, 1.0, held_up_seconds={"1": 0.5}), 1: rank(1, 1.0)}
    assert [row.waited_for for row in rows(before, after)] == [0.0, 0.5]


def test_ranks_that_start_and_that_have_ended() -> None:
    bare = {"rank": 0, "host": "h", "runs": True, "memory_bytes": 0, "cpu_seconds": 0.0, "warning": ""}
    dead = rank(1, 10.0, runs=False, memory_bytes=0)
    found = rows({}, {0: bare, 1: dead})
    assert [row.state for row in found] == ["starts", "has ended"]
    assert found[0].calls_per_second == 0.0


def test_the_same_as_text_and_as_json() -> None:
    found = rows({}, {0: rank(0, 1.0, warning="rank 1 is late"), 1: rank(1, 1.0)})
    head, first, second = top.to_text(found).splitlines()
    assert head.split()[:2] == ["rank", "host"]
    assert first.endswith("rank 1 is late")
    assert second.split()[0] == "1"
    assert [row["rank"] for row in json.loads(top.to_json(found))] == [0, 1]
