"""What the engine's warnings on a rank's stderr say of ranks that others wait for. Pure."""

from __future__ import annotations

import re
import time

from ciranda.launch.stalled_calls import StalledCalls

# The beginning of what cpp/base/log.cc writes; the phrases are those of cpp/agree/negotiation.cc and of cpp/engine's
# stall_detector.cc and liveness_probe.cc, in warnings and, at the limit, in TimeoutError.
_MARK = b"ciranda: warning: [rank "
_WAITS = re.compile(
    rb"(?:ciranda: warning: \[rank \d+\] |TimeoutError: |HorovodInternalError: )"
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
        begins = rest.rfind(_MARK)
        self._rest = rest[begins:][:_MOST_KEPT] if begins >= 0 else rest[1 - len(_MARK) :]
        if _MARK not in complete:
            return set()
        lines = [line for line in complete.split(b"\n") if _MARK in line]
        for line in lines:
            self.calls.take(line.decode("utf-8", "replace"), time.monotonic())
        self.last = lines[-1].partition(_MARK)[2].partition(b"] ")[2].decode("utf-8", "replace")[:_MOST_SHOWN]
        return awaited(b"\n".join(lines))


def awaited(text: bytes) -> set[int]:
    """The ranks that others wait for, as the stall warnings and errors among these lines say."""
    lines = [line for line in text.split(b"\n") if _WAITS.search(line)] if _WAITS.search(text) else []
    return {int(number) for line in lines for number in _RANK.findall(line.partition(_OTHERS)[0])}
