"""A traceback that is kept back until it is known whether the report of the failure shows it. Pure but for the time."""

from __future__ import annotations

import time
from collections.abc import Callable

from ciranda.launch.failure import TAIL_BYTES, TRACEBACK

HOLD_SECONDS = 1.0  # a process that a traceback ends has usually gone by then


class Held:
    """Keeps back what one rank writes to its stderr from a traceback on, for a second and up to TAIL_BYTES.

    What a rank ends with is the end of the job's output as well, if the rank is the one to blame; so it is there once.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._kept = b""
        self.deadline: float | None = None

    def feed(self, data: bytes) -> bytes:
        """Take what the rank wrote; what to show of it now."""
        if self.deadline is None:
            found = data.find(TRACEBACK)
            if found < 0:
                return data
            start = data.rfind(b"\n", 0, found) + 1
            self.deadline = self._now() + HOLD_SECONDS
            self._kept = data[start:]
            return data[:start]
        self._kept += data
        return self.expired()

    def expired(self) -> bytes:
        """What is no longer kept back, since it is too old or too much."""
        is_over = self.deadline is not None and (self._now() >= self.deadline or len(self._kept) > TAIL_BYTES)
        return self.take() if is_over else b""

    def take(self) -> bytes:
        """All that is kept back."""
        kept, self._kept, self.deadline = self._kept, b"", None
        return kept
