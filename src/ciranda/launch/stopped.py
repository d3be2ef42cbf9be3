"""Which ranks of a host stay stopped: by SIGSTOP and its like, not by a debugger. Standard library only.

Time is counted in looks, not by the clock: an agent that was itself stopped along with its ranks, as in a laptop that
was suspended, does not count what it has slept through. While all ranks of a world are stopped, nobody waits for them,
and nothing is counted: somebody means to pause the job.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from ciranda.launch.process_signs import is_stopped

NAME = "CIRANDA_STOPPED_SECONDS"
DEFAULT_SECONDS = 60.0
_LONGEST_PERIOD_SECONDS = 1.0
_FEWEST_LOOKS = 4


def limit_of(env: Mapping[bytes, bytes]) -> float:
    """The limit that the variables set, in seconds; what is no number the engine refuses, in its own words."""
    try:
        return max(0.0, float(env.get(NAME.encode()) or DEFAULT_SECONDS))
    except ValueError:
        return DEFAULT_SECONDS


def why(seconds: float) -> str:
    """What a rank was killed for: the rest of a sentence about it."""
    return f"it was stopped for {seconds:g} s ({NAME})"


class StoppedRanks:
    """Counts for how long each rank has been stopped without a break. Call look() at ``deadline``.

    Attributes:
        limit_seconds: of a stop.
        deadline: when to look next.
    """

    def __init__(self, limit_seconds: float) -> None:
        self.limit_seconds = limit_seconds
        self._period = min(_LONGEST_PERIOD_SECONDS, limit_seconds / _FEWEST_LOOKS)
        self._n_looks: dict[int, int] = {}  # in which it was stopped, without a break, by its process
        self.deadline = time.monotonic() + self._period

    def look(self, pids: Mapping[int, int], sizes: Mapping[int, int]) -> list[int]:
        """Return the ranks that have been stopped for the limit.

        Args:
            pids: the processes of the ranks of this host.
            sizes: how many ranks the world of each has; 0 of one in no world.
        """
        self.deadline = time.monotonic() + self._period
        stopped = {rank: pid for rank, pid in pids.items() if is_stopped(pid)}
        if 0 < max((sizes[rank] for rank in stopped), default=0) <= sum(sizes[rank] > 0 for rank in stopped):
            stopped = {}
        self._n_looks = {pid: self._n_looks.get(pid, -1) + 1 for pid in stopped.values()}
        return [rank for rank, pid in stopped.items() if self._n_looks[pid] * self._period >= self.limit_seconds]
