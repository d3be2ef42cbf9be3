"""Ranks that begin with different variables: told in the second step, as scripts may broadcast after the first."""

from __future__ import annotations

import pytest
from ranks import Ranks

pytestmark = pytest.mark.multiprocess

TOLD = "do not begin with the same parameters; call broadcast_variables"


def _train(mode: str, module: str, has_broadcast: bool, is_local: bool = False) -> tuple[int, str, list[str]]:
    """Return the number of steps, the error, and the warnings of the check."""
    import importlib
    import warnings

    import tensorflow as tf

    import ciranda.tensorflow

    hvd = importlib.import_module(module)
    variables = [tf.Variable([1.0 + hvd.rank(), 2.0], name="shifted"), tf.Variable([1.0], name="alike")]

    def step() -> None:
        with tf.GradientTape() as recording:
            loss = tf.reduce_sum(variables[0]) * tf.reduce_sum(variables[1])
        tape = hvd.DistributedGradientTape(recording)
        if is_local:
            tape.register_local_source(variables[0])
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.1 * gradient)

    if mode != "eager":
        step = tf.function(step, jit_compile=mode == "compiled")
    n_steps, problem = 0, ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            for number in range(4):
                step()
                n_steps += 1
                if has_broadcast and number == 0:
                    hvd.broadcast_variables(variables, root_rank=0)
        except Exception as error:
            problem = str(ciranda.tensorflow.as_ciranda_error(error))
    return n_steps, problem, [str(each.message) for each in caught if TOLD in str(each.message)]


@pytest.mark.parametrize("mode", ["eager", "graph", "compiled"])
def test_a_forgotten_broadcast(world: Ranks, mode: str) -> None:
    for n_steps, problem, _ in world.run(_train, mode, "ciranda.tensorflow", False):
        assert n_steps == 1
        assert f"DistributedGradientTape: the ranks {TOLD}" in problem
        assert "'shifted:0' (float32 [2] here) has other bits on rank" in problem
        assert "alike" not in problem
    for outcome in world.run(_train, mode, "ciranda.tensorflow", True):
        assert outcome == (4, "", [])


def test_variables_of_each_rank(world: Ranks) -> None:
    for outcome in world.run(_train, "graph", "ciranda.tensorflow", False, True):
        assert outcome == (4, "", [])


def test_horovod_scripts_are_warned_once(world: Ranks) -> None:
    pytest.importorskip("horovod.tensorflow")
    for n_steps, problem, warned in world.run(_train, "graph", "horovod.tensorflow", False):
        assert (n_steps, problem, len(warned)) == (4, "", 1)
        assert "'shifted:0'" in warned[0]


def _train_in_two_worlds() -> list[str]:
    """A program that is compiled once compares in each of its worlds."""
    import tensorflow as tf

    import ciranda.tensorflow as hvd

    variable = tf.Variable([1.0], name="one")

    @tf.function
    def step() -> None:
        with tf.GradientTape() as recording:
            loss = tf.reduce_sum(variable)
        (gradient,) = hvd.DistributedGradientTape(recording).gradient(loss, [variable])
        variable.assign_sub(gradient)

    problems = []
    for shift in (0, hvd.rank(), 0):
        hvd.shutdown()
        hvd.init()
        variable.assign([1.0 + shift])
        try:
            for _ in range(3):
                step()
            problems.append("")
        except Exception as error:
            problems.append(str(hvd.as_ciranda_error(error)))
    return problems


def test_each_world_compares_anew(world: Ranks) -> None:
    for first, second, third in world.run(_train_in_two_worlds):
        assert (first, third) == ("", "")
        assert TOLD in second


def _join_first() -> int:
    """Rank 1 has no batches in the first epoch: it meets the others, who have compared, in the second."""
    import tensorflow as tf

    import ciranda.tensorflow as hvd

    variable = tf.Variable([1.0, 2.0])

    @tf.function
    def step() -> None:
        with tf.GradientTape() as recording:
            loss = tf.reduce_sum(variable)
        (gradient,) = hvd.DistributedGradientTape(recording).gradient(loss, [variable])
        variable.assign_sub(0.1 * gradient)

    for _ in range(3 if hvd.rank() != 1 else 0):
        step()
    hvd.join()
    for _ in range(3):
        step()
    return 3


def test_a_rank_that_joins_before_its_first_step(world: Ranks) -> None:
    assert set(world.run(_join_first)) == {3}
