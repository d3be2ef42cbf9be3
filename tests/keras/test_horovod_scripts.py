"""Scripts for `horovod.tensorflow`, `horovod.tensorflow.keras` and `horovod.keras`, as their authors wrote them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fitting import BACKEND, IS_KERAS_3, alone, assert_close
from ranks import Ranks

pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.skipif(BACKEND != "tensorflow", reason="for TensorFlow"),
]


OTHER = pytest.param("horovod.keras", marks=pytest.mark.slow)


@pytest.mark.parametrize("module", ["horovod.tensorflow.keras", OTHER])
def test_fit(two: Ranks, module: str) -> None:
    def train(module: str) -> list[Any]:
        import importlib

        from fitting import BATCH, Plan, data, make_model, make_optimizer, weights_of

        hvd = importlib.import_module(module)
        hvd.init()
        x, y = data(48)
        half = BATCH // hvd.size()
        parts = [slice(start + hvd.rank() * half, start + (hvd.rank() + 1) * half) for start in range(0, 48, BATCH)]
        model = make_model(hvd.rank())
        model.compile(hvd.DistributedOptimizer(make_optimizer(Plan())), "mse", metrics=["mae"])
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
        model.fit(
            np.concatenate([x[part] for part in parts]),
            np.concatenate([y[part] for part in parts]),
            batch_size=half,
            shuffle=False,
            epochs=2,
            verbose=1 if hvd.rank() == 0 else 0,
            callbacks=callbacks,
        )
        assert float(hvd.allreduce(float(hvd.rank()))) == 0.5
        assert hvd.allgather([hvd.rank()]).numpy().tolist() == [0, 1]
        assert hvd.broadcast(hvd.rank(), 1) == 1
        return weights_of(model)

    from fitting import Plan

    expected = alone(Plan(n_samples=48))
    for weights in two.run(train, module):
        # Where a model has been built only by its first step, that step was made with weights of each rank's own.
        assert_close(weights, expected)


@pytest.mark.parametrize("module", ["horovod.tensorflow.keras", OTHER])
def test_collectives_return_tensors(two: Ranks, module: str) -> None:
    """Of whatever TensorFlow makes a tensor of, also in graphs; a tape finds what they were made of."""

    def call(module: str) -> None:
        import importlib

        import tensorflow as tf

        hvd = importlib.import_module(module)
        mine = tf.Variable([hvd.rank() + 1.0, 2.0])

        def step() -> Any:
            with tf.GradientTape() as tape:
                mean = hvd.allreduce(mine, name="mean", prescale_factor=2.0, compression=hvd.Compression.fp16)
                loss = tf.reduce_sum(mean)
            return [
                mean,
                tape.gradient(loss, mine),
                hvd.allgather([hvd.rank()], "ranks"),
                hvd.broadcast(np.arange(2) * hvd.rank(), 1, "root"),
                hvd.reducescatter(mine, op=hvd.Sum, name="part"),
            ]

        for run in (step, tf.function(step)):
            results = run()
            assert all(tf.is_tensor(result) for result in results)
            expected = [[3.0, 4.0], [2.0, 2.0], [0, 1], [0, 1], [3.0] if hvd.rank() == 0 else [4.0]]
            assert [result.numpy().tolist() for result in results] == expected

    two.run(call, module)


@pytest.mark.parametrize("how", ["eager", "graph"])
def test_a_loop_with_a_tape(two: Ranks, how: str) -> None:
    def train(how: str) -> list[Any]:
        import tensorflow as tf

        import horovod.tensorflow as hvd

        hvd.init()
        variable = tf.Variable([float(hvd.rank())] * 2)
        optimizer = tf.keras.optimizers.SGD(0.5 * hvd.size())
        hvd.broadcast_variables([variable], root_rank=0)

        def step(x: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(variable * x)
            tape = hvd.DistributedGradientTape(tape, compression=hvd.Compression.fp16)
            optimizer.apply_gradients(zip(tape.gradient(loss, [variable]), [variable], strict=True))
            return hvd.allreduce(loss, op=hvd.Sum)

        run = tf.function(step) if how == "graph" else step
        if how == "graph":
            optimizer.build([variable])
        losses = [float(run(tf.constant([1.0, 3.0]) * (hvd.rank() + 1))) for _ in range(2)]
        return [variable.numpy().tolist(), losses]

    for values, losses in two.run(train, how):
        assert values == [-3.0, -9.0]
        assert losses == [0.0, -1.5 * 3 - 4.5 * 3 * 3]


@pytest.mark.skipif(IS_KERAS_3, reason="what Horovod does with Keras 2")
def test_rules_of_horovod_with_keras_2(two: Ranks) -> None:
    """`_allreduce()` combines, and accumulates; what is applied otherwise is taken as it is."""

    def train() -> Any:
        import keras
        import tensorflow as tf

        import horovod.tensorflow.keras as hvd

        seen = []
        for legacy in (False, True):
            sgd = keras.optimizers.legacy.SGD(1.0) if legacy else keras.optimizers.SGD(1.0)
            optimizer = hvd.DistributedOptimizer(sgd, backward_passes_per_step=2, average_aggregated_gradients=True)
            variable = tf.Variable([0.0])
            for number in range(4):
                own = [tf.constant([float(hvd.rank() + 1) * (number + 1)])]
                combined = optimizer._allreduce(own, [variable])
                tf.function(lambda one: optimizer.apply_gradients([(one, variable)]))(combined[0])  # noqa: B023
                seen.append(float(variable.numpy()[0]))
            assert int(optimizer.iterations) == 4
            again = optimizer.from_config(optimizer.get_config())
            assert again.get_config() == optimizer.get_config()
            assert (type(again).__name__, type(again).__module__) == ("SGD", "horovod._keras")
        plain = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
        variable = tf.Variable([0.0])
        plain.apply_gradients([(tf.constant([float(hvd.rank() + 1)]), variable)])
        seen.append(float(variable.numpy()[0]))
        for inner in (keras.optimizers.SGD(1.0), keras.optimizers.legacy.SGD(1.0)):
            optimizer = hvd.DistributedOptimizer(inner)
            factor = hvd.rank() + 1.0
            loss = lambda factor=factor: tf.reduce_sum(variable * factor)  # noqa: E731
            with tf.GradientTape() as tape:
                told = loss()
            for pairs in (
                optimizer._compute_gradients(loss, [variable]),
                optimizer._compute_gradients(told, [variable], tape=tape),
                optimizer.compute_gradients(loss, [variable]),
            ):
                assert [(float(gradient[0]), one is variable) for gradient, one in pairs] == [(1.5, True)]
        with pytest.raises(ValueError, match="Average or Sum"):
            hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), op=3)
        return seen

    for rank, seen in enumerate(two.run(train)):
        assert seen[:8] == pytest.approx([0.0, -2.25, -2.25, -7.5] * 2)
        assert seen[8] == -(rank + 1)


def test_saved_and_loaded(two: Ranks, tmp_path: Any) -> None:
    def train(path: str) -> Any:
        import keras
        from fitting import make_model

        import horovod.tensorflow.keras as hvd

        model = make_model(0)
        model.compile(hvd.DistributedOptimizer(keras.optimizers.RMSprop(0.25)), "mse")
        model.fit(np.ones((4, 5)), np.ones((4, 3)), verbose=0)
        path = f"{path}/{hvd.rank()}.{'keras' if IS_KERAS_3 else 'h5'}"
        model.save(path)
        found = hvd.load_model(path).optimizer
        assert hasattr(found, "register_local_var")
        plain = keras.models.load_model(path).optimizer
        return type(found).__name__, float(found.learning_rate), int(found.iterations), type(plain).__name__

    assert two.run(train, str(tmp_path)) == [("RMSprop", 0.25, 1, "RMSprop")] * 2
