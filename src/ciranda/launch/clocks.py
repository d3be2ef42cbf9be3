"""The clock of another host, as exchanges over its agent's link tell it. Pure.

As in NTP: a question leaves at one time of the launcher's clock, its answer has the agent's time, and comes at another
time of the launcher's. When the agent's clock was read, the launcher's was between the two; the middle is wrong by half
the round trip at most. Of each burst of exchanges the one with the least round trip counts. Between two bursts both
clocks are taken to run at constant rates.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

N_EXCHANGES = 16  # of a burst


class Reading(NamedTuple):
    """The agent's clock, by how much it is ahead of the launcher's, and how wrong that may be. In nanoseconds."""

    at: int
    ahead: int
    bound: int


class HostClock:
    """What is known of one host's monotonic clock. Nothing: it is the launcher's own.

    Attributes:
        bound_ns: how far a converted time may be from the launcher's clock, at the exchanges.
    """

    def __init__(self, readings: Iterable[Reading] = ()) -> None:
        """``readings``: what is known already."""
        self._readings = list(readings)
        self._burst: list[Reading] = []
        self.bound_ns = max((reading.bound for reading in self._readings), default=0)

    @property
    def readings(self) -> list[Reading]:
        """What counts of each burst, in the order of time."""
        return list(self._readings)

    @property
    def is_compared(self) -> bool:
        """Whether exchanges have told of it."""
        return bool(self._readings)

    def take(self, asked: int, answered: int, came: int) -> bool:
        """Take one exchange: the launcher's clock, the agent's, the launcher's. Whether the burst is complete."""
        half = -(-(came - asked) // 2)
        self._burst.append(Reading(answered, answered - (asked + half), half))
        if len(self._burst) < N_EXCHANGES:
            return False
        best = min(self._burst, key=lambda reading: reading.bound)
        self._burst.clear()
        self._readings.append(best)
        self.bound_ns = max(self.bound_ns, best.bound)
        return True

    def launchers(self, at: int) -> int:
        """A time of this clock in the launcher's."""
        readings = self._readings
        after = bisect_right(readings, at, key=lambda reading: reading.at) if len(readings) > 1 else 0
        if not readings:
            return at
        if after in (0, len(readings)):
            return at - readings[max(0, after - 1)].ahead
        one, other = readings[after - 1], readings[after]
        share = (at - one.at) / (other.at - one.at)
        return at - one.ahead - round(share * (other.ahead - one.ahead))
