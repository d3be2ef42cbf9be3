"""What the engine's warnings on a rank's stderr say of ranks that others wait for. Pure."""

from __future__ import annotations

import json
import re
import time

from ciranda.launch.stalled_calls import StalledCalls

# What cpp/base/log_line.cc writes before a warning, in each of its forms. The phrases are those of
# cpp/agree/negotiation.cc and of cpp/engine's stall_detector.cc and liveness_probe.cc: in warnings and, at the limit,
# in TimeoutError.
_MARK = re.compile(rb'ciranda: warning: \[rank |"level":"warning","rank":')
_MOST_MARK_BYTES = 32
_MESSAGE = b',"message":'
_WAITS = re.compile(
    rb'(?:ciranda: warning: \[rank \d+[^\]]*\] |"level":"warning","rank":|TimeoutError: |HorovodInternalError: )'
    rb".*(?: has waited | still waits, after | has not moved for | has not answered for )"
)
_RANK = re.compile(rb"\brank (\d+) \(")
_OTHERS = b". Ranks that submitted it:"
_MOST_KEPT = 64 << 10
_MOST_SHOWN = 1000


class StallWarnings:
    """Finds the stall warnings in the stderr of one rank, which comes in pieces.

    Attributes:
        last: the text of the engine's last warning, of whatever kind.
        calls: that wait, as the warnings say.
    """

    def __init__(self) -> None:
        self._rest = b""
        self.last = ""
        self.calls = StalledCalls()

    def feed(self, data: bytes) -> set[int]:
        """The ranks that are waited for, of all warnings that this piece completes."""
        complete, _, rest = (self._rest + data).rpartition(b"\n")
        begins = [mark.start() for mark in _MARK.finditer(rest)]
        self._rest = rest[begins[-1] :][:_MOST_KEPT] if begins else rest[-_MOST_MARK_BYTES:]
        lines = [line for line in complete.split(b"\n") if _MARK.search(line)] if _MARK.search(complete) else []
        if not lines:
            return set()
        texts = [_text_of(line) for line in lines]
        for text in texts:
            self.calls.take(text, time.monotonic())
        self.last = texts[-1][:_MOST_SHOWN]
        return awaited(b"\n".join(lines))


def _text_of(line: bytes) -> str:
    """The text of a warning, without what stands before it."""
    in_json = line.partition(_MESSAGE)[2]
    try:
        return str(json.loads(in_json.rstrip()[:-1]))
    except ValueError:
        return line.partition(b"ciranda: warning: [rank ")[2].partition(b"] ")[2].decode("utf-8", "replace")


def awaited(text: bytes) -> set[int]:
    """The ranks that others wait for, as the stall warnings and errors among these lines say."""
    lines = [line for line in text.split(b"\n") if _WAITS.search(line)] if _WAITS.search(text) else []
    return {int(number) for line in lines for number in _RANK.findall(line.partition(_OTHERS)[0])}
