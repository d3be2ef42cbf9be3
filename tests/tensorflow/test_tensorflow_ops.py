"""ciranda.tensorflow on three ranks, eager, in graphs and compiled: what the conformance suite does not ask."""

from __future__ import annotations

import math
import signal
import time
from pathlib import Path

import pytest
import slices_work
import tf_work
from ranks import Ranks, wait_until

pytestmark = pytest.mark.multiprocess

MODES = ["eager", "graph", "xla"]
modes = pytest.mark.parametrize("mode", MODES)


@pytest.mark.parametrize("kinds", [1, 5])
def test_independent_calls_in_any_order_with_one_thread(world: Ranks, kinds: int) -> None:
    world.run(tf_work.independent_calls, 100, kinds)


@pytest.mark.slow
@pytest.mark.parametrize("n_ranks", [2, 4])
def test_independent_calls_of_fewer_and_more_ranks(environment: dict[str, str], n_ranks: int) -> None:
    with Ranks(n_ranks, env=environment) as ranks:
        for kinds in (1, 5):
            ranks.run(tf_work.independent_calls, 100, kinds)


def test_what_follows_may_wait_for_other_collectives(world: Ranks) -> None:
    world.run(tf_work.waits_behind_a_call)


@modes
def test_programs_outlive_worlds(world: Ranks, mode: str) -> None:
    world.run(tf_work.programs_outlive_worlds, mode)


def test_places_in_process_sets(world: Ranks) -> None:
    world.run(tf_work.included_in_sets)


@modes
def test_gradients(world: Ranks, mode: str) -> None:
    world.run(tf_work.gradients, mode)


def test_gradients_of_what_has_none(world: Ranks) -> None:
    world.run(tf_work.gradients_of_what_has_none)


@pytest.mark.parametrize("mode", MODES[:2])
def test_indexed_slices(world: Ranks, mode: str) -> None:
    world.run(tf_work.slices, mode)


@pytest.mark.parametrize("who", [0, 2])
def test_indexed_slices_without_those_that_have_joined(world: Ranks, who: int) -> None:
    world.run(tf_work.slices_without_one, who)


def test_indexed_slices_of_calls_that_differ(world: Ranks) -> None:
    for said in world.run(tf_work.differing_slices):
        assert all("IndexedSlices rows: ranks differ in op, divisor" in message for message in said)


@pytest.mark.parametrize("mode", MODES[:2])
def test_indexed_slices_of_integers(world: Ranks, mode: str) -> None:
    world.run(slices_work.integers, mode)


def test_indexed_slices_of_integers_that_repeat(world: Ranks) -> None:
    world.run(slices_work.integers_that_repeat)


def test_indexed_slices_of_integers_of_some_ranks(world: Ranks) -> None:
    world.run(slices_work.integers_of_some)


def test_indexed_slices_with_other_ops(world: Ranks) -> None:
    world.run(slices_work.ops_without_slices)


def test_compression(world: Ranks) -> None:
    world.run(tf_work.compressed)


@modes
def test_weighted_averages(world: Ranks, mode: str) -> None:
    world.run(tf_work.weighted, mode)


@pytest.mark.parametrize("mode", ["eager", "graph"])  # XLA has no checks of numerics
def test_weighted_averages_while_numerics_are_checked(world: Ranks, mode: str) -> None:
    world.run(tf_work.weighted_while_numerics_are_checked, mode)


def test_from_one_rank_to_others(world: Ranks) -> None:
    world.run(tf_work.from_one_rank_to_others)


def test_shapes_that_are_not_known(world: Ranks) -> None:
    world.run(tf_work.unknown_shapes)


def test_variables_in_place(world: Ranks) -> None:
    world.run(tf_work.variables)


def test_names_in_graphs(world: Ranks) -> None:
    world.run(tf_work.names_in_graphs)


def test_many_iterations_of_a_loop_at_once(world: Ranks) -> None:
    world.run(tf_work.many_iterations_at_once)


def test_calls_of_one_function_twice(world: Ranks) -> None:
    world.run(tf_work.calls_of_one_function_twice)


def test_names_at_once(world: Ranks) -> None:
    world.run(tf_work.names_at_once)


@modes
def test_bad_calls(world: Ranks, mode: str) -> None:
    world.run(tf_work.bad_calls, mode)


def test_lists_of_variables_that_differ(world: Ranks) -> None:
    (told,) = set(world.run(tf_work.differing_variables))
    assert told[0] == "FailedPreconditionError", told
    assert "'variables'" in told[1], told


def test_a_device_that_is_not_there(world: Ranks) -> None:
    world.run(tf_work.device_that_is_not_there)


@modes
def test_not_in_a_world(world: Ranks, mode: str) -> None:
    world.run(tf_work.not_in_a_world, mode)


@modes
def test_differing_factors_are_told_to_all(world: Ranks, mode: str) -> None:
    (message,) = set(world.run(tf_work.differing_factors, mode))
    assert "'t'" in message
    assert "(2.5, 3) on rank 0" in message
    assert "(1.5, 3) on rank " in message  # 1 or 2: whichever was heard of first


def test_nothing_is_left_where_a_compiled_call_has_failed(world: Ranks) -> None:
    """Either the program ends there, or it reads NaN."""
    *_, (_, read) = world.run(tf_work.compiled_after_an_error)
    assert all(math.isnan(number) for number in read), read


@modes
def test_half_precision_is_rounded_once(world: Ranks, mode: str) -> None:
    world.run(tf_work.half_precision, mode)


def test_what_cannot_be_compiled_says_so(world: Ranks) -> None:
    world.run(tf_work.not_compiled)


def _check_growth(world: Ranks, n_steps: int, *which: str) -> None:
    for grown in world.run(tf_work.many_steps, n_steps, which, timeout=200):
        assert grown < 8000, f"{grown} KiB more after {n_steps} steps"


def test_nothing_grows_with_steps(world: Ranks) -> None:
    _check_growth(world, 300, "tapes", "calls")


@pytest.mark.slow
@pytest.mark.parametrize("which", ["tapes", "calls"])
def test_nothing_grows_with_many_steps(world: Ranks, which: str) -> None:
    _check_growth(world, 10_000, which)


def test_a_rank_that_is_killed_fails_the_steps_of_all_others(world: Ranks, tmp_path: Path) -> None:
    """The last of all: a world takes seconds to make."""
    victim = 1
    for rank in range(3):
        world.start(rank, tf_work.step_until_lost, victim, tmp_path)
    world.outcome(victim)
    wait_until(lambda: len(list(tmp_path.iterdir())) == 3)  # all have made the steps that must not fail
    time.sleep(0.5)
    world.is_broken = True
    world.signal(victim, signal.SIGKILL)
    for rank in (0, 2):
        ended = world.outcome(rank)
        assert ended.error is None, ended.traceback
        for mode in MODES:
            kind, message = ended.value[mode]
            assert (kind, f"rank {victim}" in message) == ("RanksLostError", True), (mode, message)
            assert message.startswith("InternalError" if mode == "xla" else "AbortedError"), (mode, message)
