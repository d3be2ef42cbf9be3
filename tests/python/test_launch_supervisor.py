"""What an elastic job does about each event, without any process: first single histories, then many random ones."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field

import pytest

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
from ciranda.launch.offers import NEVER, Cooldown
from ciranda.launch.roster import NONE, Member, Roster, ordered
from ciranda.launch.supervisor import Limits, Supervisor

KILLED = "killed by SIGKILL (signal 9)"


@dataclass
class Job:
    """A supervisor with a clock."""

    n_slots: int = 3
    start: int = 3
    least: int = 2
    resets: int | None = None
    most: int | None = None
    cooldown: Cooldown | None = None
    hosts: list[str] = field(default_factory=list)
    now: float = 0.0

    def __post_init__(self) -> None:
        limits = Limits(self.start, self.least, 600, 100, self.resets, self.most, self.cooldown)
        self.supervisor = Supervisor(self.hosts or ["here"] * self.n_slots, limits)
        self.begun = self.supervisor.begin(self.now)

    def on(self, *events: Event) -> list[Action]:
        """What is done about the events, all together."""
        return [action for event in events for action in self.supervisor.handle(event, self.now)]

    def after(self, seconds: float) -> list[Action]:
        self.now += seconds
        return self.on(Tick())

    def running(self) -> Roster:
        """Let all join the first world."""
        actions = self.on(*(Ready(slot, NONE) for slot in range(self.n_slots)))
        assert isinstance(actions[-1], Form)
        return actions[-1].roster


def slots_of(roster: Roster) -> list[int]:
    return [member.slot for member in roster.members]


def formed(actions: list[Action]) -> Roster:
    (found,) = [action.roster for action in actions if isinstance(action, Form)]
    return found


def test_all_start_and_form_the_first_world_when_enough_are_ready() -> None:
    job = Job()
    assert job.begun == [Start(slot, 1, ("here",) * 3, slot) for slot in range(3)]
    assert job.on(Ready(0, NONE), Ready(2, NONE)) == []
    roster = formed(job.on(Ready(1, NONE)))
    assert (roster.epoch, slots_of(roster), roster.needs_sync) == (0, [0, 1, 2], True)


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_survivors_go_on_and_the_next_life_joins_at_a_commit(victim: int) -> None:
    job = Job()
    job.running()
    others = [slot for slot in range(3) if slot != victim]
    lost, start = job.on(Exited(victim, True, KILLED))
    assert lost == Lost(tuple(others), 0)
    assert start == Start(victim, 2, ("here",) * 3, 2), "it would be the last rank of its host"
    assert job.on(Ready(others[0], 7)) == []
    roster = formed(job.on(Ready(others[1], 7)))
    assert (roster.epoch, slots_of(roster), roster.left) == (1, others, {victim: KILLED})
    assert not roster.needs_sync, "nobody is new, and all have the same commit"
    assert job.on(Ready(victim, NONE)) == [Invite(tuple(others))]
    assert job.on(Ready(others[1], 9)) == []
    roster = formed(job.on(Ready(others[0], 9)))
    assert (roster.epoch, slots_of(roster)) == (2, [*others, victim])
    assert roster.needs_sync


def test_a_process_is_told_the_numbers_that_it_has_with_all_that_are_to_join() -> None:
    job = Job()
    job.running()
    job.on(Exited(0, True, KILLED))
    _, start = job.on(Exited(1, True, KILLED))
    assert start == Start(1, 2, ("here",) * 3, 2), "slot 2 is a member, slot 0 is to be"


def test_no_world_before_the_lost_is_gone() -> None:
    """The survivors know first; the agent has yet to reap."""
    job = Job()
    job.running()
    assert job.on(Ready(0, 1), Ready(2, 1)) == []
    assert slots_of(formed(job.on(Exited(1, True, KILLED)))) == [0, 2]


def test_rank_0_has_the_newest_commit() -> None:
    job = Job()
    job.running()
    job.on(Exited(0, True, KILLED), Ready(1, 4))
    roster = formed(job.on(Ready(2, 5)))
    assert slots_of(roster) == [2, 1]
    assert roster.needs_sync


def test_hosts_keep_together_and_those_with_newcomers_alone_come_last() -> None:
    old = [Member(2, 1, "b", 3), Member(3, 1, "b", 3)]
    new = [Member(0, 2, "a", NONE), Member(4, 1, "b", NONE)]
    assert [member.slot for member in ordered(old, new)] == [2, 3, 4, 0]
    roster = Roster(1, ordered(old, new), frozenset({(0, 2), (4, 1)}))
    numbers = [(each.rank, each.local_rank, each.local_size, each.cross_size) for each in roster.positions()]
    assert numbers == [(0, 0, 3, 2), (1, 1, 3, 1), (2, 2, 3, 1), (3, 0, 1, 2)]


def test_too_few_wait_and_then_the_job_ends() -> None:
    job = Job(least=3)
    job.running()
    job.on(Exited(1, True, KILLED), Ready(0, 1))
    assert job.on(Ready(2, 1)) == []
    assert job.supervisor.deadline == 600
    assert job.after(599) == []
    (give_up,) = job.after(1)
    assert isinstance(give_up, GiveUp)
    assert [member.slot for member in give_up.members] == [0, 2]
    assert job.supervisor.deadline == 660, "for them to save their states"
    assert job.on(Exited(2, True, "exit code 1")) == []
    assert job.on(Ready(1, NONE)) == [], "which comes too late"
    (kill,) = job.after(60)
    assert isinstance(kill, Kill)
    assert kill.slot == 0
    assert job.on(Exited(0, True, KILLED)) == [End("2 ranks are left, of at least 3, and no other came within 600 s")]


def test_too_few_wait_for_the_next_life() -> None:
    job = Job(least=3)
    job.running()
    job.on(Exited(1, True, KILLED), Ready(0, 1), Ready(2, 1))
    assert slots_of(formed(job.on(Ready(1, NONE)))) == [0, 2, 1]


def test_who_stays_in_a_broken_world_is_killed_before_the_next() -> None:
    job = Job(n_slots=4, start=4)
    job.running()
    job.on(Exited(1, True, KILLED), Ready(0, 1), Ready(2, 1))
    assert job.supervisor.deadline == 100
    assert job.after(99) == []
    (kill,) = job.after(1)
    assert isinstance(kill, Kill)
    assert kill.slot == 3
    assert slots_of(formed(job.on(Exited(3, True, KILLED)))) == [0, 2]


def test_who_was_waited_for_is_killed_soon() -> None:
    job = Job()
    job.running()
    assert job.on(Ready(0, 1, waited=True), Ready(2, 1, waited=True)) == []
    (kill,) = job.after(5)
    assert kill == Kill(1, "it has not left the world within 5 s")


def test_pauses_before_the_next_life_grow() -> None:
    job = Job()
    job.running()
    for commits, pause in enumerate([0, 1, 2, 4]):
        actions = job.on(Exited(2, True, KILLED), Ready(0, commits), Ready(1, commits))
        assert isinstance(actions[-1], Form)
        if pause:
            assert not any(isinstance(action, Start) for action in actions)
            assert job.after(pause - 0.1) == []
            actions = job.after(0.1)
        assert any(isinstance(action, Start) and action.slot == 2 for action in actions)
        job.on(Ready(2, NONE), Ready(0, commits))
        job.on(Ready(1, commits))
        assert slots_of(job.supervisor.roster) == [0, 1, 2]  # type: ignore[arg-type]


def test_a_slot_that_fails_again_and_again_without_a_commit_ends_the_job() -> None:
    job = Job()
    job.running()
    for time in range(3):
        actions = job.on(Exited(2, True, "exit code 1"), Ready(0, 5), Ready(1, 5))
        if time < 2:
            job.after(2)
            job.on(Ready(2, NONE), Ready(0, 5), Ready(1, 5))
    assert actions[-1] == End("it has failed 3 times without a commit in between", 2)


def test_a_slot_that_cannot_start_ends_the_job() -> None:
    job = Job()
    job.on(Ready(0, NONE), Ready(1, NONE))
    actions = []
    for _ in range(3):
        actions = job.on(Exited(2, True, "exit code 1"))
        job.after(1)
    assert actions[-1] == End("it has failed 3 times without a commit in between", 2)


def test_all_gone_is_the_end() -> None:
    job = Job()
    job.running()
    job.on(Exited(0, True, KILLED), Exited(1, True, KILLED))
    assert job.on(Exited(2, True, "exit code 3")) == [End("no rank is left that has the state", 2)]


def test_the_end_is_agreed() -> None:
    job = Job()
    job.running()
    assert job.on(Returned(1, 4), Returned(0, 4)) == []
    assert job.on(Returned(2, 4)) == [Release((0, 1, 2))]
    assert job.on(Exited(0, False, "exit code 0"), Exited(1, False, "exit code 0")) == []
    assert job.on(Exited(2, False, "exit code 0")) == [End("")]


def test_who_had_returned_is_called_again_if_another_is_lost() -> None:
    job = Job()
    job.running()
    job.on(Returned(1, 5), Exited(0, True, KILLED))
    roster = formed(job.on(Ready(2, 4)))
    assert slots_of(roster) == [1, 2], "it has the newest state"


def test_a_failure_after_the_end_is_the_jobs() -> None:
    job = Job()
    job.running()
    job.on(Returned(0, 4), Returned(1, 4), Returned(2, 4))
    assert job.on(Exited(1, True, "exit code 3")) == [End("exit code 3 after training", 1)]


def test_who_comes_too_late_is_ended_with_the_others() -> None:
    job = Job()
    job.running()
    job.on(Exited(0, True, KILLED), Ready(1, 1), Ready(2, 1), Returned(1, 2))
    release, kill = job.on(Returned(2, 2))
    assert release == Release((1, 2))
    assert kill == Kill(0, "training has ended without it")
    job.on(Exited(1, False, "exit code 0"), Exited(2, False, "exit code 0"))
    assert job.on(Exited(0, True, KILLED)) == [End("")]


def test_programs_without_elastic_training_just_end() -> None:
    job = Job()
    job.on(Exited(0, False, "exit code 0"), Exited(1, False, "exit code 0"))
    assert job.on(Exited(2, False, "exit code 0")) == [End("")]


def test_leaving_without_failure_before_the_end_is_a_failure() -> None:
    job = Job()
    job.running()
    job.on(Exited(1, False, "exit code 0"), Ready(0, 1))
    assert formed(job.on(Ready(2, 1))).left == {1: "exit code 0"}


def test_the_number_of_resets_is_limited() -> None:
    job = Job(resets=1, least=1)
    job.running()
    assert formed(job.on(Exited(1, True, KILLED), Ready(0, 1), Ready(2, 1))).epoch == 1
    (_, _, end) = job.on(Exited(2, True, KILLED), Ready(0, 2))
    assert end == End("more than 1 resets", 2)


def test_more_slots_than_the_start_needs_join_later() -> None:
    job = Job(n_slots=4, start=3)
    job.on(Ready(0, NONE), Ready(3, NONE))
    assert slots_of(formed(job.on(Ready(1, NONE)))) == [0, 1, 3]
    assert job.on(Ready(2, NONE)) == [Invite((0, 1, 3))]


def test_a_lost_host_takes_its_ranks_for_good() -> None:
    job = Job(n_slots=4, start=4, hosts=["a", "a", "b", "b"])
    job.running()
    assert job.on(Ready(3, 1), HostLost((0, 1), "a was lost")) == [Lost((2,), 0)]
    roster = formed(job.on(Ready(2, 1)))
    assert (slots_of(roster), roster.left) == ([2, 3], {0: "a was lost", 1: "a was lost"})
    assert job.after(1000) == [], "nothing is started there"
    assert job.on(HostLost((2, 3), "b was lost"))[-1] == End("no host is left")


def test_a_host_that_is_lost_before_the_first_world_is_not_waited_for() -> None:
    job = Job(n_slots=4, start=4, hosts=["a", "a", "b", "b"])
    assert job.on(Ready(0, NONE), Ready(2, NONE), HostLost((0, 1), "a was lost")) == []
    assert slots_of(formed(job.on(Ready(3, NONE)))) == [2, 3]


def test_a_discovered_host_that_cannot_be_reached_at_the_start_is_tried_again_and_joins() -> None:
    job = Job(start=3, least=2, hosts=["a", "a", "b"])
    job.on(Offered((("a", 2), ("b", 1))), HostLost((2,), "b was lost"), Ready(0, NONE))
    assert slots_of(formed(job.on(Ready(1, NONE)))) == [0, 1]
    assert job.after(1) == [Start(2, 2, ("a", "a", "b"), 2)]
    assert job.on(Ready(2, NONE)) == [Invite((0, 1))]


def test_too_few_wait_at_the_start_for_a_host_that_cannot_be_reached_and_then_the_job_ends() -> None:
    for is_back in (True, False):
        job = Job(start=3, least=3, hosts=["a", "a", "b"])
        job.on(Offered((("a", 2), ("b", 1))), HostLost((2,), "b was lost"), Ready(0, NONE), Ready(1, NONE))
        assert job.after(1) == [Start(2, 2, ("a", "a", "b"), 2)]
        if is_back:
            assert slots_of(formed(job.on(Ready(2, NONE)))) == [0, 1, 2]
        else:
            assert job.on(HostLost((2,), "b was lost")) == []
            assert job.after(2) == [Start(2, 3, ("a", "a", "b"), 2)]
            assert job.after(597) == [End("2 of 3 ranks were ready within 600 s of the first")]


def test_a_host_that_is_well_again_before_the_first_world_is_waited_for() -> None:
    job = Job(start=2, least=1, hosts=["a", "a"])
    job.on(Offered((("a", 2),)), HostLost((0, 1), "a was lost"))
    assert len(job.after(1)) == 2
    assert job.on(Ready(1, NONE)) == []
    assert slots_of(formed(job.on(Ready(0, NONE)))) == [0, 1]


def test_a_job_of_which_no_host_can_be_reached_ends() -> None:
    job = Job(start=1, least=1, hosts=["a"])
    assert job.on(Offered((("a", 1),)), HostLost((0,), "a was lost")) == []
    assert job.after(1) == [Start(0, 2, ("a",), 0)]
    assert job.on(HostLost((0,), "a was lost")) == []
    assert job.after(599) == [End("no rank was ready within 600 s")]


def test_a_host_that_is_lost_after_training_is_a_failure() -> None:
    job = Job(hosts=["a", "a", "b"])
    job.running()
    job.on(Returned(0, 4), Returned(1, 4), Returned(2, 4))
    assert job.on(HostLost((2,), "b was lost")) == [End("b was lost after training")]


def test_more_hosts_are_started_up_to_the_most_and_join_at_a_commit() -> None:
    job = Job(n_slots=2, start=2, most=4, hosts=["a", "a"])
    job.running()
    assert job.on(Offered((("a", 2), ("b", 1)))) == [Start(2, 1, ("a", "a", "b"), 2)]
    assert job.on(Offered((("b", 3), ("a", 2)))) == [Start(3, 1, ("a", "a", "b", "b"), 3)], "four are the most"
    assert job.on(Ready(3, NONE)) == [Invite((0, 1))]
    job.on(Ready(0, 3))
    roster = formed(job.on(Ready(1, 3)))
    assert slots_of(roster) == [0, 1, 3]


def test_who_is_not_offered_any_more_leaves_at_a_commit() -> None:
    job = Job(n_slots=4, start=4, hosts=["a", "a", "b", "b"])
    job.running()
    assert job.on(Offered((("a", 1), ("b", 2)))) == [Invite((0, 1, 2, 3))]
    job.on(Ready(0, 3), Ready(1, 3), Ready(2, 3))
    dismiss, form = job.on(Ready(3, 3))
    assert dismiss == Dismiss(1), "the last of its host"
    assert isinstance(form, Form)
    assert (slots_of(form.roster), form.roster.needs_sync) == ([0, 2, 3], False)
    assert job.on(Exited(1, False, "exit code 0")) == [], "which is no failure"
    assert job.on(Offered((("a", 2), ("b", 2)))) == [Start(1, 2, ("a", "a", "b", "b"), 1)]


def test_a_change_that_ends_where_it_began_interrupts_nobody() -> None:
    job = Job(hosts=["a", "a", "b"])
    job.running()
    assert job.on(Offered((("a", 2),))) == [Invite((0, 1, 2))]
    assert job.on(Offered((("a", 2), ("b", 1)))) == [Invite((0, 1, 2), is_on=False)]
    assert job.on(Offered((("a", 2), ("b", 1)))) == []


def test_a_newcomer_that_fails_before_the_commit_interrupts_nobody() -> None:
    job = Job(n_slots=4, start=3)
    job.on(Ready(0, NONE), Ready(1, NONE), Ready(2, NONE))
    assert job.on(Ready(3, NONE)) == [Invite((0, 1, 2))]
    assert job.on(Exited(3, True, KILLED))[0] == Invite((0, 1, 2), is_on=False)


def test_who_was_dismissed_and_does_not_end_is_killed() -> None:
    job = Job(hosts=["a", "a", "b"])
    job.running()
    job.on(Offered((("a", 2),)), Ready(0, 3), Ready(1, 3))
    assert job.on(Ready(2, 3))[0] == Dismiss(2)
    assert job.supervisor.deadline == 5
    (kill,) = job.after(5)
    assert isinstance(kill, Kill)
    assert kill.slot == 2
    assert job.on(Exited(2, True, KILLED)) == []


def test_the_last_one_with_the_state_stays_until_another_has_it() -> None:
    job = Job(n_slots=2, start=2, least=1, hosts=["a", "a"])
    job.running()
    assert job.on(Offered((("b", 2),)))[1] == Start(2, 1, ("a", "a", "b"), 2)
    job.on(Ready(0, 3))
    dismiss, form = job.on(Ready(1, 3))
    assert dismiss == Dismiss(1)
    assert isinstance(form, Form)
    assert slots_of(form.roster) == [0]
    assert job.on(Ready(2, NONE), Ready(3, NONE)) == [Invite((0,))]
    assert slots_of(formed(job.on(Ready(0, 4)))) == [0, 2], "two are the most"
    job.on(Exited(1, False, "exit code 0"))
    assert job.supervisor.deadline is None
    job.on(Ready(0, 5))
    assert slots_of(formed(job.on(Ready(2, 5)))) == [2, 3]


def test_a_polite_leave_below_the_least_waits_for_another_host() -> None:
    job = Job(n_slots=2, start=2, least=2, hosts=["a", "b"])
    job.running()
    job.on(Offered((("a", 1),)), Ready(0, 3))
    assert job.on(Ready(1, 3)) == [Dismiss(1)]
    job.on(Exited(1, False, "exit code 0"))
    assert job.on(Offered((("a", 1), ("c", 1)))) == [Start(2, 1, ("a", "c"), 1)]
    roster = formed(job.on(Ready(2, NONE)))
    assert (slots_of(roster), roster.needs_sync) == ([0, 2], True)


def test_a_host_of_which_a_rank_has_failed_is_used_again_after_the_cooldown() -> None:
    job = Job(hosts=["a", "a", "b"], least=1, cooldown=Cooldown(10, 30))
    job.running()
    for n_failures, seconds in enumerate([10, 20, 30]):
        actions = job.on(Exited(2, True, KILLED), Ready(0, n_failures), Ready(1, n_failures))
        assert not any(isinstance(action, Start) for action in actions)
        assert job.after(seconds - 1) == []
        assert job.after(1) == [Start(2, 2 + n_failures, ("a", "a", "b"), 2)]
        job.on(Ready(2, NONE), Ready(0, n_failures), Ready(1, n_failures))


def test_a_host_of_which_a_rank_has_failed_is_never_used_again_and_the_next_takes_its_place() -> None:
    job = Job(hosts=["a", "a", "b"], least=1, cooldown=NEVER)
    job.running()
    assert slots_of(formed(job.on(Exited(1, True, KILLED), Ready(0, 1), Ready(2, 1)))) == [0, 2], "who lives stays"
    assert job.supervisor.deadline is None
    assert job.on(Offered((("a", 2), ("b", 2)))) == [Start(3, 1, ("a", "b", "b"), 2)]


def test_all_have_failed_where_hosts_are_never_used_again() -> None:
    job = Job(hosts=["a", "a", "b"], cooldown=NEVER)
    job.on(Exited(0, True, KILLED), Exited(1, True, KILLED))
    assert job.on(Exited(2, True, KILLED)) == [End("no host is left on which no rank has failed", 2)]


def test_a_discovered_host_that_is_lost_is_used_again() -> None:
    job = Job(hosts=["a", "a", "b"])
    job.running()
    job.on(Offered((("a", 2), ("b", 1))), HostLost((2,), "b was lost"), Ready(0, 1))
    assert slots_of(formed(job.on(Ready(1, 1)))) == [0, 1]
    assert job.after(0.9) == []
    assert job.after(0.1) == [Start(2, 2, ("a", "a", "b"), 2)]


# -- random histories ------------------------------------------------------------------------------------------------


#: States in which the program or an agent does the next thing, whatever the supervisor does.
ACTING = {"running", "member", "invited", "broken", "killed", "dismissed", "after"}


class Histories:
    """Processes that do anything they may, and what must hold whatever they do."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        n_slots = self.random.choice([1, 2, 3, 3, 4, 5, 8, self.random.randint(1, 64)])
        self.start = self.random.randint(1, n_slots)
        self.least = self.random.randint(1, self.start)
        self.n_slots = n_slots
        self.now = 0.0
        self.cut_off: set[int] = set()
        self.dismissed: set[int] = set()  # since the roster
        self.state = ["none"] * n_slots
        self.commits = [NONE] * n_slots
        self.roster: Roster | None = None
        self.end: End | None = None
        self.is_released = self.have_offered = False
        hosts = self.hosts = [f"host{slot * 3 // n_slots}" for slot in range(n_slots)]
        resets = self.random.choice([None, None, 5])
        self.are_discovered = self.random.random() < 0.5
        self.most = self.random.randint(n_slots, 2 * n_slots) if self.are_discovered else n_slots
        cooldown = self.random.choice([None, None, NEVER, Cooldown(1, 20)])
        limits = Limits(self.start, self.least, 600, 100, resets, self.most, cooldown)
        self.supervisor = Supervisor(hosts, limits)
        self.carry_out(self.supervisor.begin(0.0))

    def play(self, n_events: int) -> None:
        """Let random things happen, then only good ones, until the job ends."""
        for _ in range(n_events):
            if self.end is not None:
                return
            self.happen(*self.anything())
        for _ in range(20 * self.n_slots + 200):
            if self.end is not None:
                return
            self.happen(*self.next_good())
        raise AssertionError(f"the job never ends: {self.state}")

    def happen(self, event: Event, now: float) -> None:
        self.now = now
        self.carry_out(self.supervisor.handle(event, now))
        if self.end is None and not ACTING.intersection(self.state):
            assert self.supervisor.deadline is not None, f"nobody acts, and no deadline: {self.state}"

    def anything(self) -> tuple[Event, float]:
        living = [slot for slot, state in enumerate(self.state) if state not in ("none",)]
        later = self.now + self.random.choice([0.0, 0.01, 1.0, 30.0])
        if not living or self.random.random() < 0.1:
            return self.tick(later)
        slot = self.random.choice(living)
        if self.random.random() < 0.01:
            return self.loss_of(self.hosts[slot]), later
        if self.are_discovered and self.random.random() < 0.1:
            return self.offer(), later
        if self.random.random() < 0.2:
            return self.exit_of(slot), later
        return self.step(slot), later

    def next_good(self) -> tuple[Event, float]:
        """The ranks go on and return, one after the other; what was killed goes."""
        for slot, state in enumerate(self.state):
            if state in ACTING:
                return self.step(slot, may_fail=False), self.now
        return self.tick(self.now)

    def tick(self, now: float) -> tuple[Event, float]:
        due = self.supervisor.deadline
        return Tick(), max(now, due) if due is not None else now

    def step(self, slot: int, may_fail: bool = True) -> Event:
        state = self.state[slot]
        if state in ("killed", "dismissed"):
            return self.exit_of(slot)
        if state == "after":
            self.state[slot] = "none"
            return Exited(slot, False, "exit code 0")
        if state == "running":
            self.state[slot] = "ready"
            return Ready(slot, NONE)
        if state in ("broken", "invited"):
            self.state[slot] = "ready"
            return Ready(slot, self.commits[slot], waited=may_fail and self.random.random() < 0.3)
        if state == "member":
            self.commits[slot] += self.random.randint(0, 2)
            if not may_fail or self.random.random() < 0.3:
                self.state[slot] = "returned"
                return Returned(slot, self.commits[slot])
            if self.random.random() < 0.3:
                self.state[slot] = "ready"
                return Ready(slot, self.commits[slot])
        return Tick()

    def exit_of(self, slot: int) -> Event:
        self.state[slot], self.commits[slot] = "none", NONE
        return Exited(slot, self.random.random() < 0.9, "exit code 1")

    def loss_of(self, host: str) -> Event:
        slots = tuple(slot for slot, its in enumerate(self.hosts) if its == host)
        for slot in slots:
            self.state[slot], self.commits[slot] = "none", NONE
        if not self.have_offered:
            self.cut_off.update(slots)
        return HostLost(slots, f"{host} was lost")

    def offer(self) -> Event:
        """Other hosts, or other numbers of slots."""
        self.have_offered = True
        names = [f"host{number}" for number in range(5) if self.random.random() < 0.7]
        return Offered(tuple((name, self.random.randint(1, 1 + self.n_slots // 2)) for name in names))

    def carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            assert self.end is None, "nothing follows the end"
            if isinstance(action, Start):
                while action.slot >= len(self.state):
                    self.state.append("none")
                    self.commits.append(NONE)
                    self.hosts.append("")
                assert self.hosts[action.slot] in ("", action.host)
                self.hosts[action.slot] = action.host
                assert self.state[action.slot] == "none", "two lives of a slot"
                assert not self.is_released
                assert action.slot not in self.cut_off
                assert 0 <= action.rank < len(action.hosts) <= self.most + 1
                self.state[action.slot] = "running"
            elif isinstance(action, Kill):
                assert self.state[action.slot] != "none"
                self.state[action.slot] = "killed"
            elif isinstance(action, Form):
                self.check(action.roster)
            elif isinstance(action, Lost):
                assert self.roster is not None
                assert action.epoch == self.roster.epoch
                for slot in action.slots:
                    self.state[slot] = "broken"
            elif isinstance(action, Invite):
                before, after = ("member", "invited") if action.is_on else ("invited", "member")
                for slot in action.slots:
                    self.state[slot] = after if self.state[slot] == before else self.state[slot]
            elif isinstance(action, GiveUp):
                assert len(action.members) < self.least
                for member in action.members:
                    assert self.state[member.slot] in ("ready", "returned")
                    self.state[member.slot] = "dismissed"
            elif isinstance(action, Dismiss):
                assert self.state[action.slot] in ("ready", "returned")
                self.state[action.slot] = "dismissed"
                self.dismissed.add(action.slot)
            elif isinstance(action, Release):
                assert {self.state[slot] for slot in action.slots} == {"returned"}
                assert self.roster is not None
                others = set(slots_of(self.roster)).difference(action.slots)
                assert others <= self.dismissed
                self.is_released = True
                for slot in action.slots:
                    self.state[slot] = "after"
            else:
                assert isinstance(action, End)
                self.end = action

    def check(self, roster: Roster) -> None:
        """One world an epoch; of processes that are outside any, not too few, not too many; all survivors are in it."""
        assert roster.epoch == (0 if self.roster is None else self.roster.epoch + 1)
        slots = slots_of(roster)
        assert self.least <= len(slots) == len(set(slots)) <= self.most
        assert [each.rank for each in roster.positions()] == list(range(len(slots)))
        assert all(self.state[slot] in ("ready", "returned") for slot in slots)
        assert not {"member", "broken", "invited"}.intersection(self.state), "nobody is left in the world before"
        assert all(slot in slots for slot, state in enumerate(self.state) if state == "returned")
        assert max(member.commits for member in roster.members) == roster.members[0].commits
        survivors = [member for member in roster.members if member.key not in roster.newcomers]
        assert self.roster is None or roster.members[0] in survivors, "rank 0 knows"
        for member in roster.members:
            assert member.commits == self.commits[member.slot]
            self.commits[member.slot] = max(0, roster.newest)
            self.state[member.slot] = "member"
        self.roster = roster
        self.dismissed.clear()


N_PARTS = 8
#: Few enough for each run of all tests; SUPERVISOR_HISTORIES=100000 takes minutes.
N_HISTORIES = int(os.environ.get("SUPERVISOR_HISTORIES", "3200"))


@pytest.mark.parametrize("part", range(N_PARTS))
def test_whatever_happens(part: int) -> None:
    """A seed that fails is in the message: `Histories(seed).play(60)` replays it."""
    for seed in range(part, N_HISTORIES, N_PARTS):
        try:
            Histories(seed).play(60)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
