"""The calls that wait, as the engine's warnings say."""

from __future__ import annotations

import json

import pytest

from ciranda.launch.stalled_calls import MissingRank, StalledCall, StalledCalls
from ciranda.launch.waits import StallWarnings

FIRST = (
    "'gr''ad' has waited 2.0 s for rank 1 (host a), which last submitted 'lo, ss' 2.5 s "
    "ago, rank 3, which has submitted nothing yet, and 4 more. Ranks that submitted it: 0, 2, and 7 more. All ranks "
    "must make the same calls; 9 s"
)
AGAIN = "'gr''ad' still waits, after 4.0 s, for rank 3 (host b), which last submitted 'x' 0.1 s ago."
MISSING = (MissingRank(1, "a", "lo, ss", 2.5), MissingRank(3, "", None, None))


def test_who_has_made_a_call_and_who_has_not() -> None:
    calls = StalledCalls()
    calls.take(FIRST, now=10.0)
    assert calls.at(10.0) == [StalledCall("gr''ad", 2.0, (0, 2), 7, MISSING, 4)]
    calls.take(AGAIN, now=12.0)
    assert calls.at(12.0) == [StalledCall("gr''ad", 4.0, (0, 2), 7, (MissingRank(3, "b", "x", 0.1),), 0)]


def test_the_longest_wait_comes_first() -> None:
    calls = StalledCalls()
    calls.take(FIRST.replace("gr''ad", "later").replace("2.0 s", "1.0 s"), now=10.0)
    calls.take(FIRST, now=10.0)
    assert [call.name for call in calls.at(10.0)] == ["gr''ad", "later"]


@pytest.mark.parametrize(("at", "n_calls"), [(13.9, 1), (14.1, 0)])
def test_a_call_that_is_not_warned_of_again_is_done(at: float, n_calls: int) -> None:
    calls = StalledCalls()
    calls.take(FIRST, now=10.0)
    assert len(calls.at(at)) == n_calls


def test_other_warnings_are_about_no_call() -> None:
    calls = StalledCalls()
    calls.take("rank 0 (host a), the coordinator, has not answered for 9 s: it is", 0.0)
    calls.take("I say that 'x' has waited 2.0 s for rank 1, which has submitted nothing yet", 0.0)
    assert calls.at(0.0) == []


def test_there_is_an_end_to_what_is_kept() -> None:
    calls = StalledCalls()
    for number in range(1000):
        calls.take(FIRST.replace("gr''ad", f"grad.{number}"), now=0.0)
    assert len(calls.at(0.0)) == 64
    calls.take(FIRST, now=10.0)  # those have ended
    assert [call.name for call in calls.at(10.0)] == ["gr''ad"]


@pytest.mark.parametrize(
    "line",
    [
        f"50%\rciranda: warning: [rank 0] {FIRST}",
        json.dumps({"level": "warning", "rank": 0, "message": FIRST}, separators=(",", ":")),
    ],
)
def test_the_launcher_finds_them_in_the_output(line: str) -> None:
    warnings = StallWarnings()
    warnings.feed(line.encode() + b"\nciranda: warning: [rank 0] " + AGAIN.encode()[:20])
    assert [call.name for call in warnings.calls.at(0.0)] == ["gr''ad"]
