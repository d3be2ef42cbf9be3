"""stall.json: the threads of a rank, in the words of all who write stacks."""

from __future__ import annotations

import json

import pytest

from ciranda.launch.stack_reports import RankStack
from ciranda.launch.stall_file import stall_of
from ciranda.launch.stalled_calls import MissingRank, StalledCall

FRAMES = [{"function": "load batch", "file": '/a "b"/data.py', "line": 4}, {"function": "<module>", "file": "t.py",
                                                                              "line": 9}]  # fmt: skip
CALLS = [StalledCall("grad", 2.0, (0,), 0, (MissingRank(1, "a", "loss", 2.5),), 1)]
OWN = """Thread 0x00007f01 MainThread (most recent call first):
  File "/a "b"/data.py", line 4 in load batch
  File "t.py", line 9 in <module>

Thread 0x00007f02 worker (most recent call first):
  File "w.py", line 1 in run
"""
FAULTHANDLER = OWN.replace(" MainThread", "").replace(" worker", "").replace("Thread 0x00007f01", "Current thread 0x01")
PY_SPY = """Process 4711: python t.py
Python v3.11.2 (/usr/bin/python3.11)

Thread 4711 (idle): "MainThread"
    load batch (/a "b"/data.py:4)
    <module> (t.py:9)
Thread 4712 (active+gil): "worker"
    run (w.py:1)
"""


@pytest.mark.parametrize(("text", "names"), [
    (OWN, ["MainThread", "worker"]), (FAULTHANDLER, ["", ""]), (PY_SPY, ["MainThread", "worker"]), ("no stack\n", []),
])  # fmt: skip
def test_threads_have_their_frames(text: str, names: list[str]) -> None:
    counters = {"rank": 1, "host": "a", "warning": 'says "so"\n', "waiting": 2,
                "calls_in_flight": [{"name": "grad"}]}  # fmt: skip
    stall = json.loads(stall_of(RankStack(1, "a", "load batch, data.py:4", text), {3, 1}, CALLS, counters, now=0.0))
    assert stall.pop("calls") == [
        {"name": "grad", "waited_seconds": 2.0, "submitted_by": [0], "n_more_submitted": 0, "n_more_missing": 1,
         "missing": [{"rank": 1, "host": "a", "last": "loss", "seconds": 2.5}]},
    ]  # fmt: skip
    assert [thread["name"] for thread in stall["threads"]] == names
    if names:
        assert stall["threads"][0]["frames"] == FRAMES
        assert stall["threads"][1]["frames"] == [{"function": "run", "file": "w.py", "line": 1}]
    del stall["threads"]
    assert stall == {
        "time": "1970-01-01T00:00:00Z", "rank": 1, "host": "a", "is_waited_for": True, "waited_for": [1, 3],
        "where": "load batch, data.py:4", "calls_in_flight": [{"name": "grad"}], "warning": 'says "so"\n',
        "counters": {"waiting": 2},
    }  # fmt: skip
