"""The members of one world of an elastic job, in the order of their ranks. Pure.

A *slot* is a place where the job runs a rank; the *life* of a slot is one process there, of which it has one after the
other. A *roster* lists the lives that form one world; its epoch tells it from all others of the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ciranda.launch.hosts import Slot, positions


@dataclass(frozen=True)
class Member:
    """One process of a world.

    Attributes:
        slot, life: the place, and which process there, counted from 1; together they identify the process.
        host: where that is.
        commits: how many commits of the state it has; NONE for one that has just been started.
    """

    slot: int
    life: int
    host: str
    commits: int

    @property
    def key(self) -> tuple[int, int]:
        """What tells this process from all others of the job."""
        return self.slot, self.life


#: The commits of a process without a state of its own.
NONE = -1


@dataclass(frozen=True)
class Roster:
    """The members of one world, by rank.

    Attributes:
        epoch: 0 for the first world of the job, one more for each.
        members: by rank.
        newcomers: the keys of those that were not in the world before.
        left: the slots whose process was lost since the world before, each with the reason.
    """

    epoch: int
    members: tuple[Member, ...]
    newcomers: frozenset[tuple[int, int]]
    left: dict[int, str] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        """The number of commits of rank 0, which no member exceeds."""
        return self.members[0].commits

    @property
    def needs_sync(self) -> bool:
        """Whether rank 0's state must be sent to the others: somebody is new, or lacks a commit."""
        return bool(self.newcomers) or any(member.commits != self.newest for member in self.members)

    def positions(self) -> list[Slot]:
        """The numbers of each member, by rank."""
        return positions([member.host for member in self.members])


def ordered(survivors: Sequence[Member], newcomers: Sequence[Member]) -> tuple[Member, ...]:
    """All of them by rank: host after host, survivors in their order, then the host's newcomers.

    Rank 0 is the first survivor with the newest commit, and its host the first: every state is synchronized from rank
    0. Hosts with newcomers alone come last.
    """
    if survivors:
        newest = max(survivors, key=lambda member: member.commits)
        survivors = [newest, *(member for member in survivors if member is not newest)]
    everyone = [*survivors, *newcomers]
    hosts = dict.fromkeys(member.host for member in everyone)
    return tuple(member for host in hosts for member in everyone if member.host == host)
