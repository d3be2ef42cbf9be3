"""``DIR/rank.N/stall.json``: what a rank did when others waited for some rank, for programs. Pure."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ciranda.launch.stack_reports import RankStack
from ciranda.launch.stacks import main_frames
from ciranda.launch.stalled_calls import StalledCall

# The beginning of a thread's stack, as the rank's own thread, faulthandler and py-spy write it.
_THREAD = re.compile(r'(?:Current thread|Thread) (?P<id>0x[0-9a-f]+|\d+)(?: \(\w[\w+ ]*\))?:? ?"?(?P<name>[^"(\n]*)')

_ELSEWHERE = ("rank", "host", "warning", "calls_in_flight")  # than among the counters


def stall_of(
    stack: RankStack,
    waited_for: Iterable[int],
    calls: Sequence[StalledCall],
    counters: Mapping[str, Any],
    now: float | None = None,
) -> bytes:
    """The content of the file.

    Args:
        stack: where the rank stood.
        waited_for: the ranks that others waited for.
        calls: that wait, as the rank's engine has warned.
        counters: what the launcher knows of this rank's counters, as in a report of them; empty if nothing.
        now: seconds since the epoch, by default now.
    """
    ranks = sorted(waited_for)
    told = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
        "rank": stack.rank,
        "host": stack.host,
        "is_waited_for": stack.rank in ranks,
        "waited_for": ranks,
        "where": stack.where,
        "threads": list(_threads(stack.text)),
        "calls": [_call(each) for each in calls],
        "calls_in_flight": counters.get("calls_in_flight", []),
        "warning": counters.get("warning", ""),
        "counters": {name: value for name, value in counters.items() if name not in _ELSEWHERE},
    }
    return json.dumps(told, indent=1).encode() + b"\n"


def _call(call: StalledCall) -> dict[str, Any]:
    return {**asdict(call), "missing": [each._asdict() for each in call.missing]}


def _threads(text: str) -> Iterable[dict[str, Any]]:
    """The threads with their frames, the main thread first, and innermost frames first."""
    blocks = re.split(r"^(?=Current thread |Thread )", text, flags=re.MULTILINE)
    for block in blocks:
        found = _THREAD.match(block)
        if found:
            frames = [{"function": each.function, "file": each.file, "line": each.line} for each in main_frames(block)]
            yield {"name": found["name"].strip(), "frames": frames}
