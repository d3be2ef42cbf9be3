"""Carries out what the supervisor of an elastic job decides: one world after the other, each with a store of its own.

Words to a rank (`ciranda/_line.py` has its side) go through its agent, as do those that it says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from ciranda.launch import environment, protocol
from ciranda.launch.elastic import ElasticJob
from ciranda.launch.elastic_events import (
    Action,
    Dismiss,
    End,
    Event,
    Exited,
    Form,
    GiveUp,
    HostLost,
    Invite,
    Kill,
    Lost,
    Offered,
    Ready,
    Release,
    Returned,
    Start,
    Tick,
)
from ciranda.launch.errors import LaunchError
from ciranda.launch.hosts import Host, Slot, positions
from ciranda.launch.protocol import Message
from ciranda.launch.roster import NONE, Roster
from ciranda.launch.store import Store
from ciranda.launch.supervisor import Supervisor

MAX_COMMITS = 1 << 62

#: (the host of each rank) -> their store, and its value for CIRANDA_STORE; LaunchError if it cannot listen.
NewStore = Callable[[Sequence[str]], tuple[Store, str]]

#: Starts the next process of a slot, on a host, with these variables.
StartSlot = Callable[[int, str, Mapping[str, str]], None]


class Worlds:
    """The worlds of one job; the present one's store is open.

    Args:
        job: the user's limits.
        slots: where ranks run; a slot's number is the rank of its first process.
        new_store: makes a store.
        send: sends a message to the agent of a slot.
        start: starts the next process of a slot; the orders to the agents start the first ones.
        say: tells the user.
        end: ends the job; called once.

    Attributes:
        deadline: when to call on_time() at the latest.
    """

    def __init__(
        self,
        job: ElasticJob,
        slots: Sequence[Slot],
        new_store: NewStore,
        send: Callable[[int, Message], None],
        start: StartSlot,
        say: Callable[[str], None],
        end: Callable[[End], None],
    ) -> None:
        self._host_of = {slot.rank: slot.host for slot in slots}
        self._new_store = new_store
        self._send = send
        self._start = start
        self._say = say
        self._end = end
        self._store: Store | None = None
        self._killed: set[int] = set()  # and not yet gone
        self._events: list[Event] = []  # in the order in which they came, the first of them being handled
        self._supervisor = Supervisor([slot.host for slot in slots], job.limits)
        self._supervisor.begin(time.monotonic())  # the orders to the agents start every slot

    @property
    def deadline(self) -> float | None:
        """As the supervisor's."""
        return self._supervisor.deadline

    def on_word(self, slot: int, word: Message) -> None:
        """A rank says something; ProtocolError if that is no word."""
        commits = protocol.int_of(word, "commits", NONE, MAX_COMMITS)
        if word["t"] == "ready":
            self._handle(Ready(slot, commits, word.get("waited") is True))
        elif word["t"] == "returned":
            self._handle(Returned(slot, commits))

    def on_exit(self, slot: int, is_failure: bool, how: str) -> None:
        """A rank, and what it had left behind, is gone."""
        if is_failure and slot not in self._killed and not self._supervisor.is_given_up:
            self._say(f"{self._name(slot)} has failed: {how}")
        self._killed.discard(slot)
        self._handle(Exited(slot, is_failure, how))

    def on_host_lost(self, host: str, how: str) -> None:
        """The agent of a host is gone, and with it its ranks."""
        self._handle(HostLost(tuple(slot for slot, its in self._host_of.items() if its == host), how))

    def on_offer(self, hosts: Sequence[Host]) -> None:
        """These are the hosts that there are now."""
        self._handle(Offered(tuple((host.name, host.slots) for host in hosts)))

    @property
    def hosts_in_use(self) -> set[str]:
        """The hosts on which something runs, or is to."""
        return self._supervisor.hosts_in_use

    @property
    def has_begun(self) -> bool:
        """Whether a world was formed."""
        return self._supervisor.roster is not None

    @property
    def slots_by_rank(self) -> list[int]:
        """The slots of the last world's ranks, in their order; of all slots, if there was no world."""
        roster = self._supervisor.roster
        return sorted(self._host_of) if roster is None else [member.slot for member in roster.members]

    def on_time(self) -> None:
        """Look whether a deadline is reached."""
        if self.deadline is not None and time.monotonic() >= self.deadline:
            self._handle(Tick())

    def close(self) -> None:
        """Close the store."""
        if self._store is not None:
            self._store.close()
        self._store = None

    def _handle(self, event: Event) -> None:
        self._events.append(event)
        if len(self._events) > 1:
            return  # an action has led to it
        while self._events:
            for action in self._supervisor.handle(self._events[0], time.monotonic()):
                self._carry_out(action)
            del self._events[0]

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, Form):
            self._form(action.roster)
        elif isinstance(action, Lost):
            self.close()  # which fails those that wait there
            self._tell(action.slots, {"t": "lost", "epoch": action.epoch})
        elif isinstance(action, Invite):
            self._tell(action.slots, {"t": "invite", "on": action.is_on})
        elif isinstance(action, Dismiss):
            self._say(f"{self._name(action.slot)} leaves: its slot is not offered any more")
            self._tell([action.slot], {"t": "dismiss"})
        elif isinstance(action, GiveUp):
            self._say(f"the job is given up: {action.why}")
            numbers = positions([member.host for member in action.members])
            for member, position in zip(action.members, numbers, strict=True):
                told = environment.identity(position)
                self._tell([member.slot], {"t": "give_up", "why": action.why, "told": told})
        elif isinstance(action, Release):
            self._tell(action.slots, {"t": "release"})
        elif isinstance(action, Start):
            env = environment.identity(positions(action.hosts)[action.rank])
            env["TORCHELASTIC_RESTART_COUNT"] = str(action.life - 1)
            self._host_of[action.slot] = action.host
            self._start(action.slot, action.host, env)
        elif isinstance(action, Kill):
            self._killed.add(action.slot)
            self._say(f"{self._name(action.slot)} is killed: {action.why}")
            self._send(action.slot, {"t": "kill", "rank": action.slot})
        else:
            self._end(action)

    def _form(self, roster: Roster) -> None:
        self.close()
        try:
            self._store, address = self._new_store([member.host for member in roster.members])
        except LaunchError as error:
            self._end(End(f"no world can be formed: {error}"))
            return
        self._say(_sentence(roster))
        common: Message = {
            "t": "roster",
            "epoch": roster.epoch,
            "members": [member.key for member in roster.members],
            "newcomers": sorted(roster.newcomers),
            "commits": roster.newest,
            "sync": roster.needs_sync,
        }
        for member, position in zip(roster.members, roster.positions(), strict=True):
            told = {**environment.identity(position), "CIRANDA_STORE": address}
            self._tell([member.slot], {**common, "told": told})

    def _tell(self, slots: Sequence[int], word: Mapping[str, object]) -> None:
        for slot in slots:
            self._send(slot, {"t": "word", "rank": slot, "word": dict(word)})

    def _name(self, slot: int) -> str:
        return f"[{slot}] on {self._host_of[slot]}"


def _sentence(roster: Roster) -> str:
    left = "".join(f"; [{slot}] was lost: {why}" for slot, why in sorted(roster.left.items()))
    new = sum(roster.epoch > 0 and member.key in roster.newcomers for member in roster.members)
    joined = f"; {new} of them new" if new else ""
    size = len(roster.members)
    return f"world {roster.epoch}: {size} rank{'s' * (size != 1)}{joined}{left}"
