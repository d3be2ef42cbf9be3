"""Collectives in compiled programs: what they result in, their gradients, and how they end."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import jax_ranks
import jax_threads
import jax_transformed
import pytest
from ranks import Ranks, wait_until

pytestmark = pytest.mark.multiprocess


def test_every_collective(three_or_four: Ranks) -> None:
    three_or_four.run(jax_ranks.every_collective_in_jit)


def test_values_known_before(three_or_four: Ranks) -> None:
    three_or_four.run(jax_ranks.values_known_while_a_program_is_made)


def test_gradients(three_or_four: Ranks) -> None:
    three_or_four.run(jax_ranks.gradients_in_jit)


@pytest.mark.parametrize(
    "name",
    [
        "tangents",
        "tangents_of_what_differs",
        pytest.param("functions_used_twice", marks=pytest.mark.slow),
        pytest.param("second_derivatives", marks=pytest.mark.slow),
    ],
)
def test_derivatives_and_uses(three_or_four: Ranks, name: str) -> None:
    three_or_four.run(getattr(jax_transformed, name), timeout=200)


def test_transformations(three_or_four: Ranks) -> None:
    three_or_four.run(jax_ranks.transformations)


def test_results_that_nobody_wants(three: Ranks) -> None:
    three.run(jax_ranks.unused_results_are_communicated)


def test_donated_arguments(three: Ranks) -> None:
    three.run(jax_ranks.donated_arguments_stay_in_place)


@pytest.mark.parametrize(("n_calls", "width"), [pytest.param(64, 1024, marks=pytest.mark.slow), (100, 3)])
def test_independent_calls_in_any_order(three_or_four: Ranks, n_calls: int, width: int) -> None:
    three_or_four.run(jax_ranks.in_random_order, n_calls, width, 1)


def test_wide_arrays_while_x64_is_off(three: Ranks) -> None:
    three.run(jax_ranks.wide_arrays_while_x64_is_off)


def test_nothing_is_transferred_implicitly(three: Ranks) -> None:
    three.run(jax_ranks.nothing_is_transferred_implicitly)


def test_names(three: Ranks) -> None:
    three.run(jax_ranks.names_of_unnamed_calls)


def test_names_that_stand_twice(three: Ranks) -> None:
    three.run(jax_ranks.names_that_stand_twice)


def test_programs_that_are_alike(three: Ranks) -> None:
    three.run(jax_ranks.programs_that_are_alike)


def test_errors(three: Ranks) -> None:
    three.run(jax_ranks.errors_in_jit_and_outside)


def test_process_sets(three: Ranks) -> None:
    three.run(jax_ranks.process_sets_by_number)


def test_programs_outlive_worlds(three: Ranks) -> None:
    three.run(jax_ranks.programs_outlive_worlds)


def test_what_follows_keeps_nobody_waiting(three: Ranks) -> None:
    assert three.run(jax_threads.long_code_behind_an_allreduce) == [True] * 3


def test_what_follows_may_communicate(three: Ranks) -> None:
    three.run(jax_threads.callback_that_communicates)


@pytest.mark.slow
def test_programs_in_another_order_are_told_of() -> None:
    env = {"CIRANDA_STALL_WARNING_SECONDS": "1", "CIRANDA_STALL_SHUTDOWN_SECONDS": "3"}
    with Ranks(2, env=env) as ranks:
        messages = ranks.run(jax_threads.programs_in_another_order)
        for message, (mine, others, other) in zip(messages, (("f", "g", 1), ("g", "f", 0)), strict=True):
            assert message.startswith("DEADLINE_EXCEEDED: ciranda.jax: "), message
            assert f"'{mine}' has waited" in message, message
            assert f"Rank {other} has submitted '{others}' instead, which rank {1 - other} has not" in message, message
        assert "different orders" in ranks.stderr(0)


@pytest.mark.parametrize("victim", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_a_rank_is_killed_in_a_step(victim: int, tmp_path: Path) -> None:
    with Ranks(3) as ranks:
        for rank in range(3):
            ranks.start(rank, jax_threads.waits_for, victim, tmp_path)
        ranks.outcome(victim)
        wait_until(lambda: len(list(tmp_path.iterdir())) == 3)
        time.sleep(0.5)  # the others wait by then, or soon: either must end
        ranks.signal(victim, signal.SIGKILL)
        ended = [ranks.outcome(rank) for rank in range(3) if rank != victim]
    for outcome in ended:
        assert outcome.error is None, outcome.traceback
        assert len(outcome.value) == 7
        for way, message in outcome.value.items():
            assert f"rank {victim}" in message, (way, message)


@pytest.mark.slow
def test_programs_are_found_on_disk(tmp_path: Path) -> None:
    for wanted in ("cache_misses", "cache_hits"):
        with Ranks(2) as ranks:
            for found in ranks.run(jax_ranks.program_on_disk, str(tmp_path), wanted == "cache_hits"):
                assert found == [wanted], found


@pytest.mark.slow
def test_many_steps_leave_nothing() -> None:
    with Ranks(2) as ranks:
        assert max(ranks.run(jax_threads.many_steps, 10_000, timeout=200)) < 8192
