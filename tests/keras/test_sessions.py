"""Graphs and sessions of TensorFlow 1: hooks, optimizers, variables, and Keras 2 without eager execution."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fitting import BACKEND, IS_KERAS_3, Plan, alone, assert_close
from ranks import Ranks

pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.skipif(BACKEND != "tensorflow", reason="for TensorFlow"),
]


def monitored(folder: str, last_step: int, module: str, use_resource: bool) -> list[list[float]]:
    """Train as the examples of Horovod for TensorFlow 1 do; return the variable after each step."""
    import importlib

    import tensorflow as tf

    hvd = importlib.import_module(module)
    hvd.init()
    v1 = tf.compat.v1
    seen = []
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [2])
        variable = v1.get_variable("v", initializer=[hvd.rank() + 1.0, 0.0], use_resource=use_resource)
        global_step = v1.train.get_or_create_global_step()
        optimizer = hvd.DistributedOptimizer(v1.train.MomentumOptimizer(0.5, 0.5))
        train = optimizer.minimize(tf.reduce_sum(variable * x), global_step=global_step)
        with tf.control_dependencies([train]):
            after = tf.identity(variable.read_value())
        hooks = [hvd.BroadcastGlobalVariablesHook(0), v1.train.StopAtStepHook(last_step=last_step)]
        # Rank 0 alone writes checkpoints, and reads them.
        where = folder if hvd.rank() == 0 else None
        with v1.train.MonitoredTrainingSession(checkpoint_dir=where, hooks=hooks, log_step_count_steps=0) as session:
            while not session.should_stop():
                seen.append(session.run(after, {x: np.array([1.0, 2.0]) * (hvd.rank() + 1)}).tolist())
    return seen


@pytest.mark.parametrize(
    ("module", "use_resource"),
    [
        ("horovod.tensorflow", True),
        pytest.param("horovod.tensorflow", False, marks=pytest.mark.slow),
        pytest.param("ciranda.tensorflow", True, marks=pytest.mark.slow),
    ],
)
def test_a_monitored_session(two: Ranks, tmp_path: Path, module: str, use_resource: bool) -> None:
    """The second one goes on where rank 0's checkpoint is, on all ranks: also the count of steps and the momentum."""
    expected, variable, velocity = [], np.array([1.0, 0.0]), np.zeros(2)
    for _ in range(5):
        velocity = 0.5 * velocity + np.array([1.5, 3.0])
        variable = variable - 0.5 * velocity
        expected.append(variable)
    for last_step, part in ((2, slice(0, 2)), (5, slice(2, 5))):
        for seen in two.run(monitored, str(tmp_path), last_step, module, use_resource):
            np.testing.assert_allclose(seen, expected[part], rtol=1e-6)


def test_graphs_of_variables_that_differ(two: Ranks) -> None:
    def broadcast() -> str:
        import tensorflow as tf

        import ciranda.tensorflow as hvd

        v1 = tf.compat.v1
        with tf.Graph().as_default(), v1.Session() as session:
            none = hvd.broadcast_global_variables(0)  # of a graph without variables: so on all ranks
            session.run(none)
        with tf.Graph().as_default(), v1.Session() as session:
            if hvd.rank() == 0:
                v1.get_variable("v", initializer=[1.0, 2.0])
            spread = hvd.broadcast_global_variables(0)
            session.run(v1.global_variables_initializer())
            try:
                session.run(spread)
            except tf.errors.FailedPreconditionError as error:
                return str(hvd.as_ciranda_error(error))
        return ""

    for message in two.run(broadcast):
        assert "'broadcast_variables'" in message


@pytest.mark.skipif(IS_KERAS_3, reason="Keras 3 needs eager execution")
def test_keras_without_eager_execution(worlds: Any) -> None:
    def train(plan: Plan) -> list[Any]:
        import tensorflow as tf

        tf.compat.v1.disable_eager_execution()
        from fitting import BATCH, data, make_model, weights_of

        import horovod.tensorflow.keras as hvd

        half = BATCH // hvd.size()
        x, y = data(48)
        parts = [slice(start + hvd.rank() * half, start + (hvd.rank() + 1) * half) for start in range(0, 48, BATCH)]
        model = make_model(hvd.rank())
        optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.legacy.SGD(0.1, momentum=0.9))
        model.compile(optimizer, "mse", metrics=["mae"])
        callbacks = [
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
            hvd.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: 1.0, staircase=False),
        ]
        mine = np.concatenate([x[part] for part in parts]), np.concatenate([y[part] for part in parts])
        model.fit(*mine, batch_size=half, shuffle=False, epochs=2, verbose=0, callbacks=callbacks)
        tf.compat.v1.keras.backend.get_session().run(hvd.broadcast_global_variables(0))
        return weights_of(model)

    plan = Plan(n_samples=48)
    expected = alone(plan)
    with worlds.apart(2) as ranks:
        for weights in ranks.run(train, plan):
            assert_close(weights, expected)
