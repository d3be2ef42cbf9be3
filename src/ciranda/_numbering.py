"""Numbers for unnamed calls: the same on all ranks of a process set, if these make the same calls in the same order.

Each process set has its own, as ranks differ in the sets that they are in. Counting restarts in each *era* of a set:
when the world begins, and when its ranks have joined, as those that had joined before the others missed some calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ciranda._basics import at_end, world
from ciranda.process_sets import ProcessSet

#: How often this rank has joined in this world, by process set.
_joins: dict[int | None, int] = {}
at_end.append(_joins.clear)
#: Called when an era begins within a world.
at_join: list[Callable[[], None]] = []


class Era(NamedTuple):
    """A time in which the ranks of a set count alike."""

    epoch: int
    joins: int


def era_of(process_set: ProcessSet) -> Era:
    """Return the set's present era."""
    return Era(world.epoch, _joins.get(process_set.process_set_id, 0))


def begin_era(process_set: ProcessSet) -> None:
    """Note that this rank joins: its next calls in the set come after all have joined."""
    _joins[process_set.process_set_id] = era_of(process_set).joins + 1
    for notice in at_join:
        notice()


class Numbering:
    """Counts one kind of thing from 0, in each lane of each process set, in each of its eras."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int | None, int], tuple[Era, int]] = {}

    def next(self, process_set: ProcessSet) -> int:
        """Return the number of one more."""
        lane = (process_set.process_set_id, process_set._lane)
        now = era_of(process_set)
        era, count = self._counts.get(lane, (now, 0))
        if era != now:
            count = 0
        self._counts[lane] = now, count + 1
        return count
