"""What happens to an elastic job, and what is to be done about it: the events and actions of `Supervisor`. Pure.

The launcher hears events from agents, and carries actions out (`worlds.py`); `supervisor.py` turns one into the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from ciranda.launch.roster import Member, Roster

# -- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ready:
    """The slot's process is outside any world. ``waited``: because a rank did not answer for too long."""

    slot: int
    commits: int
    waited: bool = False


@dataclass(frozen=True)
class Returned:
    """The slot's process has returned from training, and waits for the others."""

    slot: int
    commits: int


@dataclass(frozen=True)
class Exited:
    """The slot's process, and what it has left behind, is gone. ``how`` in words; ``is_failure`` by its exit code."""

    slot: int
    is_failure: bool
    how: str


@dataclass(frozen=True)
class HostLost:
    """Nothing can be started in these slots any more, and their processes are gone."""

    slots: tuple[int, ...]
    how: str


@dataclass(frozen=True)
class Offered:
    """These hosts are discovered now, with so many slots each, and no others."""

    hosts: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Tick:
    """It is time to look again: the deadline is reached, or nothing else has happened."""


Event = Ready | Returned | Exited | HostLost | Offered | Tick


# -- actions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Start:
    """Start a process in this slot, for its ``life``-th life.

    ``hosts``: those of the ranks that it would join, by rank; ``rank``: its place among them. A number that no slot had
    before is that of a new one.
    """

    slot: int
    life: int
    hosts: tuple[str, ...]
    rank: int

    @property
    def host(self) -> str:
        """Where the slot is."""
        return self.hosts[self.rank]


@dataclass(frozen=True)
class Kill:
    """Kill the slot's process; Exited follows."""

    slot: int
    why: str


@dataclass(frozen=True)
class Form:
    """Tell the members of a new world, and close the one before."""

    roster: Roster


@dataclass(frozen=True)
class Lost:
    """Tell these slots that no world can come of the roster with this epoch any more."""

    slots: tuple[int, ...]
    epoch: int


@dataclass(frozen=True)
class Invite:
    """Tell these slots whether others want to join or are to leave: then all leave the world at their next commit."""

    slots: tuple[int, ...]
    is_on: bool = True


@dataclass(frozen=True)
class Dismiss:
    """Tell this slot, whose process stands outside any world, to end."""

    slot: int


@dataclass(frozen=True)
class GiveUp:
    """Tell these members of a world that is never formed, by rank, that they may save their states, and are to end."""

    members: tuple[Member, ...]
    why: str


@dataclass(frozen=True)
class Release:
    """Tell these slots that training has ended on all."""

    slots: tuple[int, ...]


@dataclass(frozen=True)
class End:
    """End the job. ``why`` is empty if it has ended well; ``blamed`` is the slot whose failure ended it, if one's."""

    why: str
    blamed: int | None = None


Action = Start | Kill | Form | Lost | Invite | Dismiss | GiveUp | Release | End
