"""What a host offers an elastic job, and for how long it is left alone after a failure. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Cooldown:
    """How long a host is not used: ``low`` seconds, after each further failure twice as long, up to ``high``."""

    low: float
    high: float

    def seconds(self, n_failures: int) -> float:
        """Return how long that is after so many failures."""
        return min(self.high, self.low * 2.0 ** min(n_failures - 1, 64))


#: A host of which a rank has failed is not used again: Horovod's rule unless a cooldown is given.
NEVER = Cooldown(math.inf, math.inf)


@dataclass
class OfferingHost:
    """A host as an elastic job knows it.

    Attributes:
        n_slots: how many ranks it takes now.
        closed_until: when something may be started there again.
    """

    n_slots: int
    n_failures: int = 0
    closed_until: float = 0.0

    def close(self, cooldown: Cooldown, now: float) -> None:
        """Leave it alone after a failure."""
        self.n_failures += 1
        self.closed_until = now + cooldown.seconds(self.n_failures)
