"""Decides what an elastic job does when ranks come, fail and end. Pure: no process, socket or clock is touched here.

`Supervisor.handle(event, now)` returns the actions that the launcher carries out. A slot goes through these states:

    SPARE <-> WAITING -> RUNNING -> READY -> MEMBER -> RETURNED
                 ^          |         |        |          |
                 +----------+-- gone, or killed ----------+

Slots are SPARE beyond what their hosts offer and the user allows. A process is READY when it stands in `elastic.run`
outside any world, with its state built. All READY processes form a world, a *roster*, once no member of the last one is
still in it: a member leaves its world when a collective fails or, because the next one is to have other members, at its
next commit. The job has ended well when all members have RETURNED from training.

Where hosts are discovered, what they offer changes. A member whose slot is not offered any more leaves at its next
commit: it is dismissed when the others form the next world. It stays as long as it has a commit that no other has.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

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
from ciranda.launch.offers import Cooldown, OfferingHost
from ciranda.launch.roster import NONE, Member, Roster, ordered

MAX_FAILURES = 3  # of one slot without a commit in between
LONGEST_PAUSE_SECONDS = 60.0  # before a process is started again
TOLD_SECONDS = 5.0  # for a rank that others have waited for in vain to leave the world; for a dismissed one to end
GIVE_UP_SECONDS = 60.0  # for ranks that are too few to save their states
LOST_HOST = Cooldown(1.0, LONGEST_PAUSE_SECONDS)  # before a discovered host whose agent was lost is used again


@dataclass(frozen=True)
class Limits:
    """What the user allows.

    Attributes:
        start: how many ranks the first world waits for, as far as hosts that have not failed have slots for them.
        least: how many any other has at least; below it the ranks wait for others.
        wait_seconds: how long they wait.
        patience_seconds: how long the ranks that have left a world wait for one that has not, before it is killed.
        resets: how many worlds may follow the first; None for any number.
        most: how many any world has at most; None for as many as there are slots at the start.
        cooldown: how long nothing is started on a host of which a rank has failed; None: the slot alone pauses.
    """

    start: int
    least: int
    wait_seconds: float = 600.0
    patience_seconds: float = 600.0
    resets: int | None = None
    most: int | None = None
    cooldown: Cooldown | None = None


# -- state -----------------------------------------------------------------------------------------------------------


class _At(Enum):
    SPARE = auto()  # nothing is to run here now
    WAITING = auto()  # to be started at start_at
    RUNNING = auto()
    READY = auto()
    MEMBER = auto()
    RETURNED = auto()
    KILLED = auto()  # and not yet gone
    DISMISSED = auto()  # likewise, for it is not needed any more
    GONE = auto()  # for good


#: States of a slot whose process may become ready.
_FIT = frozenset({_At.WAITING, _At.RUNNING, _At.READY})

#: States of a process that is, or is to be, of use.
_ALIVE = frozenset({_At.RUNNING, _At.READY, _At.MEMBER, _At.RETURNED, _At.KILLED})


@dataclass
class _Slot:
    index: int
    host: str
    at: _At = _At.WAITING
    life: int = 0
    commits: int = NONE
    start_at: float = 0.0
    leave_by: float = math.inf
    failures: int = 0
    failures_since_commit: int = 0

    @property
    def member(self) -> Member:
        return Member(self.index, self.life, self.host, self.commits)

    def pause(self) -> float:
        """Seconds until it is started again: 0, 1, 2, 4 and so on."""
        return 0.0 if self.failures <= 1 else min(LONGEST_PAUSE_SECONDS, 2.0 ** min(self.failures - 2, 16))


@dataclass
class Supervisor:
    """The state of one elastic job.

    Args:
        hosts: that of each slot.
        limits: what the user allows.

    Attributes:
        roster: the present world, or the last one; None before the first.
        deadline: when to send Tick at the latest; None if only an event of a process can change anything.
    """

    hosts: Sequence[str]
    limits: Limits
    roster: Roster | None = None
    deadline: float | None = None
    _slots: list[_Slot] = field(default_factory=list)
    _is_broken: bool = False  # a member of the roster is gone
    _is_inviting: bool = False
    _left: dict[int, str] = field(default_factory=dict)  # since the roster was formed
    _last_failed: int | None = None
    _newest: int = NONE  # the most commits of any roster
    _has_waited: bool = False  # a member has left since another did not answer for too long
    _leaving_since: float | None = None  # since when members have left the world that others are still in
    _too_few_since: float | None = None
    _is_released: bool = False
    _is_host_lost: bool = False
    _has_ended: bool = False
    _given_up: str = ""  # why
    _hosts: dict[str, OfferingHost] = field(default_factory=dict)  # by age
    _are_discovered: bool = False
    _surplus: set[int] = field(default_factory=set)  # members whose slots are not offered any more

    def begin(self, now: float) -> list[Action]:
        """Start every slot."""
        self._slots = [_Slot(index, host) for index, host in enumerate(self.hosts)]
        self._hosts = {host: OfferingHost(n_slots) for host, n_slots in Counter(self.hosts).items()}
        return self.handle(Tick(), now)

    def handle(self, event: Event, now: float) -> list[Action]:
        """Return what is to be done about the event."""
        if self._has_ended:
            return []
        actions: list[Action] = []
        if isinstance(event, Ready):
            self._on_ready(event)
        elif isinstance(event, Returned):
            self._on_returned(event)
        elif isinstance(event, Exited):
            actions += self._on_exited(event, now)
        elif isinstance(event, HostLost):
            actions += self._on_host_lost(event, now)
        elif isinstance(event, Offered):
            self._on_offered(event)
        if not self._has_ended and not self._is_released and not self._given_up:
            actions += self._choose(now)
        if not self._has_ended:
            actions += self._end_given_up() if self._given_up else self._look(now)
        if not self._has_ended:
            actions += self._start_due(now)
            actions += self._kill_dismissed(now)
        self.deadline = None if self._has_ended else self._next_deadline()
        return actions

    @property
    def is_given_up(self) -> bool:
        """Whether ranks only end."""
        return bool(self._given_up)

    @property
    def hosts_in_use(self) -> set[str]:
        """The hosts that are offered, and those on which a process has not ended."""
        offered = {name for name, host in self._hosts.items() if host.n_slots > 0}
        return offered | {slot.host for slot in self._slots if slot.at in _ALIVE or slot.at is _At.DISMISSED}

    # -- events ------------------------------------------------------------------------------------------------------

    def _on_ready(self, event: Ready) -> None:
        slot = self._slots[event.slot]
        if slot.at in (_At.RUNNING, _At.READY, _At.MEMBER):
            slot.at = _At.READY
            slot.commits = event.commits
            self._has_waited |= event.waited

    def _on_returned(self, event: Returned) -> None:
        slot = self._slots[event.slot]
        if slot.at is _At.MEMBER:
            slot.at = _At.RETURNED
            slot.commits = event.commits

    def _on_exited(self, event: Exited, now: float) -> list[Action]:
        slot = self._slots[event.slot]
        if slot.at is _At.DISMISSED:
            slot.at, slot.commits, slot.leave_by = _At.SPARE, NONE, math.inf
        if slot.at not in _ALIVE:
            return []
        was_member = self._is_member(slot)
        was_running = slot.at is _At.RUNNING
        slot.commits = NONE
        if self._is_released:
            slot.at = _At.GONE
            return self._end(f"{event.how} after training", slot.index) if was_member and event.is_failure else []
        if was_running and not event.is_failure and not was_member:
            slot.at = _At.GONE  # its program has ended without elastic training
            return []
        slot.failures += 1
        slot.failures_since_commit += 1
        slot.at, slot.start_at = _At.WAITING, now
        if self.limits.cooldown is None:
            slot.start_at += slot.pause()
        else:
            self._hosts[slot.host].close(self.limits.cooldown, now)
        self._last_failed = slot.index
        if not was_member:
            return self._end_if_failing_again(slot) if self.roster is None else []
        return self._lose([slot], event.how)

    def _on_host_lost(self, event: HostLost, now: float) -> list[Action]:
        lost = [self._slots[index] for index in event.slots if self._slots[index].at is not _At.GONE]
        members = [slot for slot in lost if self._is_member(slot) and slot.at in _ALIVE]
        for slot in lost:
            slot.at, slot.commits, slot.leave_by = _At.SPARE if self._are_discovered else _At.GONE, NONE, math.inf
        for host in {slot.host for slot in lost}:
            if self._are_discovered:
                self._hosts[host].close(self.limits.cooldown or LOST_HOST, now)
            else:
                self._hosts[host].n_slots = 0
        self._is_host_lost |= bool(lost)
        if members and self._is_released:
            return self._end(f"{event.how} after training")
        return self._lose(members, event.how) if members else []

    def _on_offered(self, event: Offered) -> None:
        self._are_discovered = True
        for host in self._hosts.values():
            host.n_slots = 0
        for name, n_slots in event.hosts:
            self._hosts.setdefault(name, OfferingHost(0)).n_slots = n_slots

    def _lose(self, members: Sequence[_Slot], how: str) -> list[Action]:
        """These members are gone: no world comes of the roster any more."""
        assert self.roster is not None
        self._left |= {slot.index: how for slot in members}
        self._is_broken = True
        others = tuple(each.index for each in self._members() if each.at is _At.MEMBER)
        return [Lost(others, self.roster.epoch)] if others else []

    def _end_if_failing_again(self, slot: _Slot) -> list[Action]:
        if slot.failures_since_commit < MAX_FAILURES:
            return []
        return self._end(f"it has failed {MAX_FAILURES} times without a commit in between", slot.index)

    # -- decisions ---------------------------------------------------------------------------------------------------

    def _choose(self, now: float) -> list[Action]:
        """Choose the slots that are to run, as many as the hosts offer and the user allows."""
        self._add_slots()
        self._surplus.clear()
        n_free = self._most()
        taken: Counter[str] = Counter()
        actions: list[Action] = []
        members = {slot.index: rank for rank, slot in enumerate(self._members())}
        ages = {host: age for age, host in enumerate(self._hosts)}
        rather = [(self._preference(slot, members, ages, now), slot) for slot in self._slots]
        for _, slot in sorted(rather, key=lambda pair: pair[0]):
            is_chosen = n_free > 0 and taken[slot.host] < self._hosts[slot.host].n_slots
            if slot.at in (_At.SPARE, _At.WAITING):
                is_chosen = is_chosen and self._due(slot) < math.inf
                slot.at = _At.WAITING if is_chosen else _At.SPARE
            elif slot.at is _At.DISMISSED:
                is_chosen = False
            elif not is_chosen and slot.index in members:
                self._surplus.add(slot.index)
            elif not is_chosen and slot.at is _At.READY:
                actions.append(self._dismiss(slot, now))
            elif not is_chosen and slot.at is _At.RUNNING:
                slot.at = _At.DISMISSED
                actions.append(Kill(slot.index, "its slot is not offered any more"))
            taken[slot.host] += is_chosen
            n_free -= is_chosen
        return actions

    def _add_slots(self) -> None:
        """Number the slots of which hosts have more than before."""
        known = Counter(slot.host for slot in self._slots)
        for name, host in self._hosts.items():
            for _ in range(known[name], min(host.n_slots, self._most())):
                self._slots.append(_Slot(len(self._slots), name, _At.SPARE))

    def _preference(
        self, slot: _Slot, members: Mapping[int, int], ages: Mapping[str, int], now: float
    ) -> tuple[float, ...]:
        """Sort slots by who is to run rather: members by rank, others that live, who can be started soonest."""
        if slot.index in members:
            return 0, members[slot.index]
        if slot.at not in (_At.SPARE, _At.WAITING):
            return 1, slot.index
        return 2, max(now, self._due(slot)), ages[slot.host], slot.index

    def _due(self, slot: _Slot) -> float:
        return max(slot.start_at, self._hosts[slot.host].closed_until)

    def _kill_dismissed(self, now: float) -> list[Action]:
        late = [slot for slot in self._slots if now >= slot.leave_by]
        for slot in late:
            slot.leave_by = math.inf
        return [Kill(slot.index, "it has not ended in the time that it was given") for slot in late]

    def _start_due(self, now: float) -> list[Action]:
        if self._is_released or self._given_up:
            return []
        actions: list[Action] = []
        for slot in self._slots:
            if slot.at is _At.WAITING and now >= self._due(slot):
                slot.at, slot.life = _At.RUNNING, slot.life + 1
                actions.append(self._start(slot))
        return actions

    def _start(self, slot: _Slot) -> Start:
        """Start it with the numbers that it would have if it joined with all that have been started, too."""
        if self.roster is None:
            present, new = [], [each.member for each in self._slots if each.at is _At.WAITING or each.at in _ALIVE]
        else:
            present = [each.member for each in self._members()]
            others = [each.member for each in self._joining() if each is not slot]
            new = [*others[: max(0, self._most() - len(present) - 1)], slot.member]
        order = ordered(present, new)
        rank = [each.key for each in order].index(slot.member.key)
        return Start(slot.index, slot.life, tuple(each.host for each in order), rank)

    def _look(self, now: float) -> list[Action]:
        """Form a world, or end the job, if it is time."""
        idle = [slot for slot in self._slots if slot.at in (_At.SPARE, _At.WAITING)]
        if not idle and all(slot.at is _At.GONE for slot in self._slots):
            is_cut_off = self._is_host_lost and not self._is_released
            return self._end("no host is left" if is_cut_off else "")
        if self._is_released:
            is_over = all(slot in idle or slot.at is _At.GONE for slot in self._slots)
            return self._end("") if is_over else []
        return self._look_for_first(now) if self.roster is None else self._look_for_next(self.roster, now)

    def _look_for_first(self, now: float) -> list[Action]:
        ready = self._at(_At.READY)
        sound = [slot for slot in self._slots if slot.at in _FIT and self._is_sound(slot.host)]
        if len(ready) >= min(self.limits.start, max(self.limits.least, len(sound))):
            return self._form([], ready)
        is_idle = all(slot.at in (_At.SPARE, _At.GONE) for slot in self._slots)
        if is_idle and any(slot.at is _At.GONE for slot in self._slots):
            return self._end("")  # programs without elastic training
        if is_idle and self._last_failed is not None:
            return self._end("no host is left on which no rank has failed", self._last_failed)
        if not ready and sound:
            self._too_few_since = None
            return []
        if self._too_few_since is None:
            self._too_few_since = now
        if now < self._too_few_since + self.limits.wait_seconds:
            return []
        if len(ready) >= self.limits.least:
            return self._form([], ready)
        why = f"{len(ready)} of {self.limits.start} ranks were ready within {self._waited()} of the first"
        return self._end(why if ready else f"no rank was ready within {self._waited()}", self._last_failed)

    def _is_sound(self, host: str) -> bool:
        """Whether ranks of the first world are awaited from it: it has not failed, or is well again."""
        return self._hosts[host].n_failures == 0 or any(slot.host == host for slot in self._at(_At.READY))

    def _look_for_next(self, roster: Roster, now: float) -> list[Action]:
        members = self._members()
        if not members:
            return self._end("no rank is left that has the state", self._last_failed)
        left = [slot for slot in members if slot.at in (_At.READY, _At.RETURNED)]
        if not self._is_broken and all(slot.at is _At.RETURNED for slot in members):
            return self._release()
        is_leaving = self._is_broken or any(slot.at is _At.READY for slot in members)
        if not is_leaving:
            return self._invite(members)
        if len(left) < len(members):
            return self._hurry(members, now)
        self._leaving_since = None
        newest = max(slot.commits for slot in members)
        if newest > self._newest:
            for slot in self._slots:
                slot.failures_since_commit = min(1, slot.failures_since_commit) if slot.index in self._left else 0
        self._newest = max(newest, self._newest)
        for slot in self._slots:
            if end := self._end_if_failing_again(slot):
                return end
        if self.limits.resets is not None and roster.epoch + 1 > self.limits.resets:
            return self._end(f"more than {self.limits.resets} resets", self._last_failed)
        return self._form_or_wait(members, now)

    def _form_or_wait(self, members: list[_Slot], now: float) -> list[Action]:
        stayers = self._stayers(members)
        dismissed: list[Action] = [self._dismiss(slot, now) for slot in members if slot not in stayers]
        newcomers = [slot for slot in self._at(_At.READY) if slot not in members][: self._most() - len(stayers)]
        if len(stayers) + len(newcomers) >= self.limits.least:
            return [*dismissed, *self._form(stayers, newcomers)]
        if self._too_few_since is None:
            self._too_few_since = now
        if now < self._too_few_since + self.limits.wait_seconds:
            return dismissed
        return [*dismissed, *self._give_up(stayers, newcomers, now)]

    def _give_up(self, survivors: list[_Slot], newcomers: list[_Slot], now: float) -> list[Action]:
        """No other has come: let the ranks save their states, and end."""
        members = ordered([slot.member for slot in survivors], [slot.member for slot in newcomers])
        n_ranks, least = len(members), self.limits.least
        is_or_are = "rank is" if n_ranks == 1 else "ranks are"
        self._given_up = f"{n_ranks} {is_or_are} left, of at least {least}, and no other came within {self._waited()}"
        for slot in (*survivors, *newcomers):
            slot.at, slot.leave_by = _At.DISMISSED, now + GIVE_UP_SECONDS
        self._too_few_since = None
        return [GiveUp(members, self._given_up)]

    def _end_given_up(self) -> list[Action]:
        return [] if self._at(_At.DISMISSED) else self._end(self._given_up)

    def _form(self, survivors: Iterable[_Slot], newcomers: Iterable[_Slot]) -> list[Action]:
        present = [slot.member for slot in survivors]  # by their rank in the world before
        new = [slot.member for slot in newcomers]
        epoch = 0 if self.roster is None else self.roster.epoch + 1
        self.roster = Roster(epoch, ordered(present, new), frozenset(member.key for member in new), self._left)
        for member in self.roster.members:
            self._slots[member.slot].at = _At.MEMBER
            self._slots[member.slot].commits = max(0, self.roster.newest)  # once the states are synchronized
        self._left, self._is_broken, self._is_inviting, self._has_waited = {}, False, False, False
        self._too_few_since = self._leaving_since = None
        return [Form(self.roster)]

    def _invite(self, members: list[_Slot]) -> list[Action]:
        """Have the members leave the world at their next commit if the next one would differ; or no longer."""
        stayers = self._stayers(members)
        has_room = len(stayers) < self._most() and any(slot not in members for slot in self._at(_At.READY))
        is_due = has_room or len(stayers) < len(members)
        if is_due is self._is_inviting:
            return []
        self._is_inviting = is_due
        return [Invite(tuple(slot.index for slot in members), is_due)]

    def _stayers(self, members: list[_Slot]) -> list[_Slot]:
        """Return the members of the next world: all whose slots are offered, and whoever alone has the newest state."""
        offered = [slot for slot in members if slot.index not in self._surplus]
        newest = max((slot.commits for slot in offered), default=NONE - 1)
        ahead = [slot for slot in members if slot.index in self._surplus and slot.commits > newest]
        kept = max(ahead, key=lambda slot: slot.commits, default=None)
        return [slot for slot in members if slot in offered or slot is kept]

    def _dismiss(self, slot: _Slot, now: float) -> Dismiss:
        slot.at, slot.leave_by = _At.DISMISSED, now + TOLD_SECONDS
        return Dismiss(slot.index)

    def _hurry(self, members: list[_Slot], now: float) -> list[Action]:
        """Some have left the world, others are still in it: they follow at their next collective, or are killed."""
        if not any(slot.at is _At.READY for slot in members):
            return []  # nobody waits
        if self._leaving_since is None:
            self._leaving_since = now
        if now < self._leaving_since + self._patience():
            return []
        late = [slot for slot in members if slot.at is _At.MEMBER]
        for slot in late:
            slot.at = _At.KILLED
        return [Kill(slot.index, f"it has not left the world within {self._patience():g} s") for slot in late]

    def _release(self) -> list[Action]:
        """Training has ended: members may go on, whoever was to join is not needed."""
        self._is_released = True
        actions: list[Action] = [Release(tuple(slot.index for slot in self._members()))]
        for slot in self._slots:
            if slot.at in (_At.RUNNING, _At.READY):
                slot.at = _At.KILLED
                actions.append(Kill(slot.index, "training has ended without it"))
        return actions

    def _end(self, why: str, blamed: int | None = None) -> list[Action]:
        self._has_ended = True
        return [End(why, blamed)]

    # -- what there is -----------------------------------------------------------------------------------------------

    def _most(self) -> int:
        return len(self.hosts) if self.limits.most is None else self.limits.most

    def _at(self, state: _At) -> list[_Slot]:
        return [slot for slot in self._slots if slot.at is state]

    def _joining(self) -> list[_Slot]:
        """The processes that are in no world yet, and are to be."""
        return [slot for slot in self._slots if slot.at in (_At.RUNNING, _At.READY) and not self._is_member(slot)]

    def _is_member(self, slot: _Slot) -> bool:
        return self.roster is not None and any(m.key == slot.member.key for m in self.roster.members)

    def _members(self) -> list[_Slot]:
        """Those of the roster that live, by rank."""
        members = [] if self.roster is None else [(m, self._slots[m.slot]) for m in self.roster.members]
        return [slot for member, slot in members if slot.life == member.life and slot.at in _ALIVE]

    def _patience(self) -> float:
        return min(TOLD_SECONDS, self.limits.patience_seconds) if self._has_waited else self.limits.patience_seconds

    def _waited(self) -> str:
        return f"{self.limits.wait_seconds:g} s"

    def _next_deadline(self) -> float | None:
        are_started = not (self._is_released or self._given_up)
        due = [self._due(slot) for slot in self._at(_At.WAITING)] if are_started else []
        due += [slot.leave_by for slot in self._slots if slot.leave_by < math.inf]
        if self._leaving_since is not None and any(slot.at is _At.MEMBER for slot in self._members()):
            due.append(self._leaving_since + self._patience())
        if self._too_few_since is not None:
            due.append(self._too_few_since + self.limits.wait_seconds)
        return min(due, default=None)
