"""`horovod.runner.common.util.timeout`: a time that several steps share."""

from __future__ import annotations

import time

__all__ = ["Timeout", "TimeoutException"]


class TimeoutException(Exception):
    """The time was over before all was done."""


class Timeout:
    """A time limit of `timeout` seconds from now on; `message` may have places for `{activity}` and `{timeout}`."""

    def __init__(self, timeout: float, message: str) -> None:
        self._seconds = timeout
        self._ends_at = time.monotonic() + timeout
        self._message = message

    def remaining(self) -> float:
        """How many seconds are left; never less than 0."""
        return max(0.0, self._ends_at - time.monotonic())

    def timed_out(self) -> bool:
        """Whether none are."""
        return self.remaining() == 0.0

    def check_time_out_for(self, activity: str) -> None:
        """Raise TimeoutException, which names `activity`, if the time is over."""
        if self.timed_out():
            raise TimeoutException(
                self._message.format(activity=activity, timeout=self._seconds)
                + f" Timeout after {self._seconds} seconds."
            )
