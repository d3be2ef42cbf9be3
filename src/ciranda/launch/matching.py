"""Which calls of the ranks are one collective, and which rank came last to it. Pure.

The ranks of a process set make the calls of one name on one lane in the same order, so the n-th of each rank belong
together. Ranks may lack some: what was recorded began and ended a little differently on each, a rank has died, or
records were lost. No rank is done with a collective before all have come to it, so calls that do not overlap in time
belong to different ones, and the count goes on from there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_OPEN = 2  # groups of a name: by the time of its third, all that belongs to the first has come


class Call(NamedTuple):
    """One rank's call, in nanoseconds of the launcher's clock; a stage that it has skipped has the time of the next."""

    done: int
    rank: int  # an index of the ranks that are merged
    submitted: int
    arrived: int  # when the other ranks had all that they need of this one
    agreed: int
    started: int
    is_ok: bool
    row: Any  # the caller's


class Group:
    """The calls of one collective that have been found.

    Attributes:
        all_ok: whether all of them succeeded.
        first_done: when the first was done; all had come by then.
        last: the last that came.
    """

    __slots__ = ("all_ok", "calls", "first_done", "last", "mask")

    def __init__(self, call: Call) -> None:
        self.calls = [call]
        self.mask = 1 << call.rank
        self.all_ok = call.is_ok
        self.first_done = call.done
        self.last = call

    def add(self, call: Call) -> None:
        """Take another rank's call."""
        if call.arrived > self.last.arrived:
            self.last = call
        if call.done < self.first_done:
            self.first_done = call.done
        self.mask |= 1 << call.rank
        self.all_ok = self.all_ok and call.is_ok
        self.calls.append(call)


class Sequence:
    """The collectives of one name on one lane of a process set. REQUIRES: calls come in the order of their ends."""

    __slots__ = ("_first", "_next", "_open")

    def __init__(self) -> None:
        self._open: list[Group] = []
        self._first = 0  # the number of the first open one
        self._next: dict[int, int] = {}  # by rank: the number of its next

    def add(self, call: Call, tolerance: int, n_members: int) -> list[Group]:
        """Take a call; return the groups to which nothing will be added any more.

        ``tolerance``: by how much the clocks of two ranks may differ. ``n_members``: of the process set; 0: unknown.
        """
        opened, rank = self._open, call.rank
        at = self._next.get(rank, 0) - self._first
        if at < 0:
            at = 0
        n_opened = len(opened)
        while at < n_opened and (call.arrived > opened[at].first_done + tolerance or opened[at].mask >> rank & 1):
            at += 1
        if at < n_opened:
            group = opened[at]
            if call.done + tolerance < group.last.arrived:
                return [Group(call)]  # it belongs to an earlier one, of which nothing else is known
            group.add(call)
        else:
            at = n_opened
            group = Group(call)
            opened.append(group)
        self._next[rank] = self._first + at + 1
        if at == 0 and len(group.calls) == n_members:
            n_closed = 1
        else:
            n_closed = len(opened) - _OPEN
            if n_closed <= 0:
                return []
        closed = opened[:n_closed]
        del opened[:n_closed]
        self._first += n_closed
        return closed

    def rest(self) -> list[Group]:
        """What is left when there are no more calls."""
        rest, self._open = self._open, []
        self._first += len(rest)
        return rest
