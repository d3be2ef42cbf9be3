"""Callbacks that throw, take long, wait for other collectives, leave the world or end the process: on one engine."""

from __future__ import annotations

import pytest
import rough
from ranks import Ranks

pytestmark = pytest.mark.multiprocess


def test_what_throws_is_told_and_goes_no_further(world: Ranks) -> None:
    assert world.run(rough.throws) == [10] * 3
    assert "rough: throws.9" in world.stderr(0)


def test_what_takes_long_keeps_no_other_tensor_waiting(world: Ranks) -> None:
    world.run(rough.takes_long)


def test_a_callback_may_wait_for_other_collectives(world: Ranks) -> None:
    assert world.run(rough.waits_for_another) == [0] * 3


def test_leaving_in_a_callback_ends_the_world(environment: dict[str, str]) -> None:
    with Ranks(2, env=environment) as ranks:
        ranks.run(rough.leaves)


def test_ending_the_process_in_a_callback_is_heard_of(environment: dict[str, str]) -> None:
    with Ranks(3, env=environment) as ranks:
        for rank in range(3):
            ranks.start(rank, rough.exits, 1)
        assert ranks.processes[1].wait(timeout=120) == 7
        for rank in (0, 2):
            outcome = ranks.outcome(rank)
            assert outcome.error is None, outcome.traceback
            message = outcome.value
            assert message.startswith(("RanksLostError", "AbortedError")), message
            assert "rank 1" in message, message
        ranks.is_broken = True  # one has ended with another code, as it should
