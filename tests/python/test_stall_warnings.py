"""What the launcher finds in stall warnings, and in stacks."""

from __future__ import annotations

import pytest

from ciranda.launch.stacks import main_frames, where
from ciranda.launch.waits import StallWarnings, awaited

WARNING = (
    b"ciranda: warning: [rank 0] 'grad' has waited 2.0 s for rank 1 (host a), which last submitted 'a' 2.0 s ago, and "
    b"rank 3 (host b), which has submitted nothing yet. Ranks that submitted it: 0, 2. All ranks must\n"
)


TEXT = b"2026-11-29T07:30:18.123456Z " + WARNING.replace(b"[rank 0]", b"[rank 0 hostB step 12]")
JSON = (
    b'{"time":"2026-11-29T07:30:18.123456Z","level":"warning","rank":0,"host":"hostB","step":12,"message":"'
    + WARNING.partition(b"] ")[2].rstrip()
    + b'"}\n'
)


@pytest.mark.parametrize("size", [1, 7, 64, 4096])
@pytest.mark.parametrize("warning", [WARNING, TEXT, JSON])
def test_warnings_in_pieces(warning: bytes, size: int) -> None:
    data = b"50 %|###  |\r" + warning + b"text of the rank 5 (host c)\n" + warning.replace(b"rank 3", b"rank 4")
    warnings = StallWarnings()
    found = [warnings.feed(data[start : start + size]) for start in range(0, len(data), size)]
    assert set().union(*found) == {1, 3, 4}
    assert warnings.last.startswith("'grad' has waited 2.0 s for rank 1 (host a), ")
    assert "rank 4" in warnings.last


def test_the_last_warning_may_be_about_anything() -> None:
    warnings = StallWarnings()
    assert warnings.last == ""
    assert warnings.feed(b"ciranda: warning: [rank 0] no costs were measured\nother text\n") == set()
    assert warnings.last == "no costs were measured"


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        (b"ciranda: warning: [rank 0] 'x' began, but has not moved for 3 s. Waiting for rank 2 (host a).", {2}),
        (b"ciranda: warning: [rank 1] rank 0 (host a), the coordinator, has not answered for 9 s: it is stopped", {0}),
        (b"ciranda.errors.TimeoutError: 'x' has waited 5.0 s for rank 1 (host a), which", {1}),
        (b"ciranda: warning: [rank 0] the timeline /tmp/x lacks 3 calls of rank 1 (all)", set()),
        (b"I have waited for rank 1 (host a)", set()),
    ],
)  # fmt: skip
def test_who_is_waited_for(line: bytes, ranks: set[int]) -> None:
    assert awaited(line) == ranks


STACKS = """Thread 0x00007f0000000001 MainThread (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/usr/lib/python3.11/queue.py", line 171 in get
  File "/home/me/data.py", line 4 in load_batch
  File "/home/me/train.py", line 9 in <module>

Thread 0x00007f0000000002 other (most recent call first):
  File "/home/me/other.py", line 1 in run
"""
OF_PY_SPY = """Process 12: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 12 (idle): "MainThread"
    load_batch (data.py:4)
    <module> (train.py:9)
"""


def test_the_users_function_is_named() -> None:
    assert where(STACKS) == "load_batch, data.py:4 (in wait, threading.py:320)"
    assert where(OF_PY_SPY) == "load_batch, data.py:4"
    deeper = STACKS.replace('train.py", line 9 in <module>', 'train.py", line 7 in train')
    assert where(deeper) == "load_batch, data.py:4 (in wait, threading.py:320), called by train, train.py:7"
    assert len(main_frames(STACKS)) == 4
    assert where("") == ""
