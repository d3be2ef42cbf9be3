"""DistributedOptimizer within what else TensorFlow has for training: strategies of tf.distribute, and estimators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fitting import BACKEND, IS_KERAS_3, Plan, alone, assert_close, together

pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.slow,
    pytest.mark.skipif(BACKEND != "tensorflow", reason="for TensorFlow"),
]


def within_strategies(plan: Plan) -> tuple[list[list[Any]], str]:
    """Return the weights after training within strategies of one device, and what is said to one of two."""
    import tensorflow as tf

    import ciranda.keras as hvd

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    found = []
    for strategy in (tf.distribute.OneDeviceStrategy("/cpu:0"), tf.distribute.MirroredStrategy(["/cpu:0"])):
        with strategy.scope():
            found.append(together(plan))
    with (
        tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]).scope(),
        pytest.raises(hvd.errors.NotSupportedError) as refusal,
    ):
        together(plan)
    return found, str(refusal.value)


def test_strategies(worlds: Any) -> None:
    """Those that leave a process one replica change nothing; others would train something else, and are refused."""
    plan = Plan()
    expected = alone(plan)
    with worlds.apart(2) as ranks:
        for of_strategies, refusal in ranks.run(within_strategies, plan):
            for weights in of_strategies:
                assert_close(weights, expected)
            assert "2 replicas" in refusal


def estimated(folder: str) -> list[list[float]]:
    """Return the weights of an estimator after it was trained, and trained and evaluated."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    estimator = tf.estimator

    def model_fn(features: Any, labels: Any, mode: Any) -> Any:
        start = tf.compat.v1.constant_initializer(float(hvd.rank()))
        weights = tf.compat.v1.get_variable("weights", [4, 1], initializer=start)
        loss = tf.reduce_mean((tf.matmul(features["x"], weights) - labels) ** 2)
        if mode == estimator.ModeKeys.EVAL:
            return estimator.EstimatorSpec(mode, loss=loss)
        optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1))
        train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
        return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    x = np.random.default_rng(hvd.rank()).normal(size=(64, 4)).astype(np.float32)
    y = x.sum(axis=1, keepdims=True)
    numbers = tf.compat.v1.estimator.inputs.numpy_input_fn({"x": x}, y, batch_size=8, num_epochs=None, shuffle=False)
    model = estimator.Estimator(model_fn, f"{folder}/{hvd.rank()}")
    hooks = [hvd.BroadcastGlobalVariablesHook(0)]
    found = []
    model.train(numbers, steps=30, hooks=hooks)
    found.append(model.get_variable_value("weights").ravel().tolist())
    specs = [
        estimator.TrainSpec(numbers, max_steps=100, hooks=hooks),
        estimator.EvalSpec(numbers, steps=2, start_delay_secs=0, throttle_secs=0),
    ]
    estimator.train_and_evaluate(model, *specs)
    found.append(model.get_variable_value("weights").ravel().tolist())
    return found


@pytest.mark.skipif(IS_KERAS_3, reason="no estimators in this version of TensorFlow")
def test_estimators(worlds: Any, tmp_path: Path) -> None:
    with worlds.apart(2) as ranks:
        first, second = ranks.run(estimated, str(tmp_path))
    assert first == second
    np.testing.assert_allclose(first[0], np.ones(4), atol=0.05)
    np.testing.assert_allclose(first[1], np.ones(4), atol=1e-3)
