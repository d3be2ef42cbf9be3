"""Every framework passes the same tests: see conformance.py for what ranks do in them, and cases.py for the cases."""

from __future__ import annotations

import signal
import time

import conformance
import pytest
from chosen import FRAMEWORKS
from ranks import Ranks

pytestmark = pytest.mark.multiprocess


def test_every_case_in_any_order(world: Ranks, framework: str) -> None:
    assert len(set(world.run(conformance.all_cases, [framework], 1, timeout=220))) == 1


@pytest.mark.skipif(len(FRAMEWORKS) < 2, reason="there is one framework")
def test_frameworks_meet(world: Ranks) -> None:
    """Each rank uses another: there is one engine, and names say what belongs together."""
    for first in range(0, len(FRAMEWORKS), 3):
        names = [FRAMEWORKS[(first + index) % len(FRAMEWORKS)] for index in range(3)]
        assert world.run(conformance.all_cases, names, 2)[0] > 100


def test_calls_that_are_made_again(world: Ranks, framework: str) -> None:
    world.run(conformance.blocking, [framework])


@pytest.mark.parametrize("who", [0, 2])
def test_without_those_that_have_joined(world: Ranks, framework: str, who: int) -> None:
    world.run(conformance.joined, [framework], who)


@pytest.mark.gradients
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_gradients(world: Ranks, framework: str, dtype: str) -> None:
    world.run(conformance.gradients, [framework], dtype)


def test_disagreements_are_named_everywhere(world: Ranks, framework: str) -> None:
    on_ranks = world.run(conformance.mismatches, [framework])
    for what, (_, parts) in conformance.MISMATCHES.items():
        (ended,) = {found[what] for found in on_ranks}
        kind, message = ended
        assert kind == "Mismatch", ended
        assert all(part in message for part in ("'t'", "rank 2", *parts)), (what, message)


def test_calls_that_are_wrong_by_themselves(world: Ranks, framework: str) -> None:
    world.run(conformance.bad_calls, [framework])


def test_programs_outlive_contexts(world: Ranks, framework: str) -> None:
    world.run(conformance.programs_outlive_contexts, [framework])


def test_nothing_stays_behind(world: Ranks, framework: str) -> None:
    world.run(conformance.nothing_stays_behind, [framework])


def test_a_rank_that_is_killed_fails_the_calls_of_all_frameworks(environment: dict[str, str]) -> None:
    victim = 1
    with Ranks(3, env=environment) as ranks:
        ranks.run(conformance.all_work, FRAMEWORKS)
        for rank in range(3):
            ranks.start(rank, conformance.all_fail, FRAMEWORKS, victim)
        ranks.outcome(victim)
        time.sleep(0.5)  # the others wait by then, or soon: either must end
        ranks.signal(victim, signal.SIGKILL)
        for rank in (0, 2):
            ended = ranks.outcome(rank)
            assert ended.error is None, ended.traceback
            for name in FRAMEWORKS:
                kind, message = ended.value[name]
                assert (kind, f"rank {victim}" in message) == ("RanksLost", True), (name, kind, message)
