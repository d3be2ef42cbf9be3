"""Ranks that leave out a step together: where a LossScaleOptimizer finds gradients that are not finite."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from fitting import BACKEND, IS_KERAS_3, MODES, SOME_MODES, Plan, alone, assert_close, make_model
from ranks import Ranks

pytestmark = pytest.mark.multiprocess

FIXED = {"learning_rate": 0.1}


@pytest.mark.skipif(not IS_KERAS_3, reason="Keras 2 has classes of its own for this")
@pytest.mark.parametrize("mode", SOME_MODES)
@pytest.mark.parametrize("outside", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_ranks_leave_out_a_step_together(two: Ranks, mode: str, outside: bool) -> None:
    """The gradients of rank 1 are infinite in one batch; the scale of all ranks is halved, and nobody waits."""

    def train() -> tuple[list[Any], float, float]:
        import keras
        import numpy as np
        from fitting import data

        import ciranda.keras as hvd

        x, y = data(32)
        sgd = keras.optimizers.SGD(0.1)
        if outside:
            optimizer = keras.optimizers.LossScaleOptimizer(hvd.DistributedOptimizer(sgd), initial_scale=8.0)
        else:
            optimizer = hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(sgd, initial_scale=8.0))
        model = make_model(0)
        model.compile(optimizer, "mse", **MODES[mode])
        model.fit(hvd.GlobalBatches(x, y, batch_size=16), shuffle=False, verbose=0)
        good = [np.array(weight) for weight in model.get_weights()]
        if hvd.rank() == 1:
            x[20:24] = np.inf
        x[24:] = np.inf if hvd.rank() == 1 else x[24:]
        model.fit(hvd.GlobalBatches(x[16:], y[16:], batch_size=16), shuffle=False, verbose=0)
        assert_close(model.get_weights(), good, 0)
        return good, float(optimizer.dynamic_scale), float(optimizer.inner_optimizer.iterations)

    expected = alone(Plan(n_samples=32, epochs=1, settings=FIXED))
    for weights, scale, steps in two.run(train):
        assert_close(weights, expected)
        assert scale == 4.0
        assert steps == 2


@pytest.mark.skipif(IS_KERAS_3, reason="Keras 3 has another class for this")
@pytest.mark.parametrize("combine_when", ["apply", "compute"])
def test_ranks_leave_out_a_step_together_in_keras_2(two: Ranks, combine_when: str) -> None:
    """The same, where the scaled gradients are combined before Keras looks whether they are finite."""

    def train(legacy: bool, outside: bool, combine_when: Any) -> tuple[list[Any], float]:
        import keras
        import numpy as np
        from fitting import data

        import ciranda.keras as hvd

        x, y = data(32)
        scaling = keras.mixed_precision.LossScaleOptimizer
        sgd = (keras.optimizers.legacy if legacy else keras.optimizers).SGD(0.1)
        if outside:
            optimizer = scaling(hvd.DistributedOptimizer(sgd, combine_when=combine_when), initial_scale=8.0)
        else:
            optimizer = hvd.DistributedOptimizer(scaling(sgd, initial_scale=8.0), combine_when=combine_when)
        model = make_model(0)
        model.compile(optimizer, "mse")
        model.fit(hvd.GlobalBatches(x, y, batch_size=16), shuffle=False, verbose=0)
        good = [np.array(weight) for weight in model.get_weights()]
        if hvd.rank() == 1:
            x[24:] = np.inf
        model.fit(hvd.GlobalBatches(x[16:], y[16:], batch_size=16), shuffle=False, verbose=0)
        assert_close(model.get_weights(), good, 0)
        return good, float(optimizer.loss_scale)

    expected = alone(Plan(n_samples=32, epochs=1, settings=FIXED))
    for legacy in (False, True):
        for outside in (False, True):
            for weights, scale in two.run(train, legacy, outside, combine_when):
                assert_close(weights, expected)
                assert scale == 4.0


@pytest.mark.skipif(IS_KERAS_3, reason="Keras 3 has another class for this")
@pytest.mark.parametrize("legacy", [False, True])
def test_numerics_are_checked_in_keras_2(two: Ranks, legacy: bool) -> None:
    """Gradients that stay local and do not overflow: no operation makes what `enable_check_numerics()` refuses."""

    def train() -> None:
        import keras
        import tensorflow as tf
        from fitting import data

        import ciranda.keras as hvd

        model = make_model(0)
        sgd = (keras.optimizers.legacy if legacy else keras.optimizers).SGD(0.1)
        local = hvd.PartialDistributedOptimizer(sgd, local_layers=[model.get_layer("first")])
        tf.debugging.enable_check_numerics()
        try:
            model.compile(keras.mixed_precision.LossScaleOptimizer(local, initial_scale=8.0), "mse")
            model.fit(*data(32), batch_size=16, verbose=0)
        finally:
            tf.debugging.disable_check_numerics()

    two.run(train)


@pytest.mark.skipif(IS_KERAS_3, reason="Keras 3 has another class for this")
@pytest.mark.parametrize("combine_when", ["apply", "compute"])
@pytest.mark.parametrize("keeps", ["local layers", "passes"])
def test_gradients_that_a_rank_keeps_overflow_in_keras_2(two: Ranks, keeps: str, combine_when: str) -> None:
    """Those of rank 1 are infinite in the first pass, in a layer that is not combined, or while passes accumulate."""
    n_good = 3 if combine_when == "compute" else 2  # what is not finite stays in the sum, and the next pass goes too

    def train(legacy: bool, graph: bool, bad: int) -> tuple[list[float], list[float], float]:
        import keras
        import numpy as np
        import tensorflow as tf

        import ciranda.keras as hvd

        model = make_model(0)
        rows = tf.Variable(tf.zeros((3, 2)))
        variables = [*model.trainable_variables, rows]
        inner = hvd.PartialDistributedOptimizer(
            (keras.optimizers.legacy if legacy else keras.optimizers).SGD(1.0),
            local_layers=[model.get_layer("first")] if keeps == "local layers" else None,
            backward_passes_per_step=2 if keeps == "passes" else 1,
            sparse_as_dense=keeps == "passes",
            combine_when=combine_when,
        )
        if keeps == "local layers":
            inner.register_local_var(rows)
        optimizer = keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=8.0)

        def step(slopes: Any) -> None:
            with tf.GradientTape() as tape:
                parts = [*model.trainable_variables, tf.gather(rows, [0, 2])]
                loss = tf.add_n([slopes[place] * tf.reduce_sum(part) for place, part in enumerate(parts)])
            optimizer.minimize(loss, variables, tape=tape)

        run = tf.function(step) if graph else step
        before = [variable.numpy() for variable in variables]
        found = []
        for number in range(1 + n_good):
            slopes = np.full(len(variables), hvd.rank() + 1.0, np.float32)
            if number == 0 and hvd.rank() == 1:
                slopes[bad] = np.inf
            run(tf.constant(slopes))
            changes = [float(np.mean(old - new.numpy())) for old, new in zip(before, variables, strict=True)]
            found.append(changes)
        return found[0], found[-1], float(optimizer.loss_scale)

    for legacy, graph, bad in product((False, True), (False, True), (0, -1)):
        for rank, (first, last, scale) in enumerate(two.run(train, legacy, graph, bad)):
            assert first == [0.0] * 5
            own = n_good * (rank + 1) / 2
            expected = [own, own, n_good * 1.5, n_good * 1.5, own] if keeps == "local layers" else [3.0] * 5
            expected[-1] *= 2 / 3  # of three rows, two are used
            np.testing.assert_allclose(last, expected, rtol=1e-5)
            assert scale == (2.0 if (keeps, combine_when) == ("passes", "compute") else 4.0)


@pytest.mark.skipif(IS_KERAS_3, reason="Keras 3 accumulates what has no scale")
@pytest.mark.parametrize("combine_when", ["apply", "compute"])
def test_passes_add_up_while_the_scale_changes_in_keras_2(two: Ranks, combine_when: str) -> None:
    """The scale doubles with each pass; and what is finite in each of them is not when it has been combined."""

    def train(legacy: bool, graph: bool, too_much: bool) -> tuple[float, float, int]:
        import keras
        import tensorflow as tf

        import ciranda.keras as hvd

        inner = hvd.DistributedOptimizer(
            (keras.optimizers.legacy if legacy else keras.optimizers).SGD(1.0),
            backward_passes_per_step=2,
            combine_when=combine_when,
            op=hvd.Sum,
            compression=hvd.Compression.fp16 if too_much else hvd.Compression.none,
        )
        optimizer = keras.mixed_precision.LossScaleOptimizer(
            inner, initial_scale=8.0, dynamic_growth_steps=100 if too_much else 1
        )
        weight = tf.Variable(0.0)

        def step(slope: Any) -> None:
            with tf.GradientTape() as tape:
                loss = slope * weight
            optimizer.minimize(loss, [weight], tape=tape)

        run = tf.function(step) if graph else step
        for number in range(4):
            run(tf.constant(20000.0 if too_much else number + 1.0))
        return float(weight), float(optimizer.loss_scale), int(optimizer.iterations)

    for legacy, graph in product((False, True), (False, True)):
        assert two.run(train, legacy, graph, False) == [(-20.0, 128.0, 4)] * 2, (legacy, graph)
        # Once with each sum, which is 80000.
        assert two.run(train, legacy, graph, True) == [(0.0, 2.0, 4)] * 2, (legacy, graph)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="for TensorFlow")
@pytest.mark.parametrize("how", ["graph", pytest.param("eager", marks=pytest.mark.slow)])
def test_a_tape_that_leaves_layers_to_ranks_skips_steps_on_all(two: Ranks, how: str) -> None:
    """With a LossScaleOptimizer that is not distributed: rank 1 alone sees that its own gradients are infinite."""

    def train(how: str) -> tuple[list[float], list[float], float]:
        import keras
        import tensorflow as tf

        import ciranda.tensorflow as hvd

        layers = [keras.layers.Dense(1, use_bias=False, kernel_initializer="ones") for _ in range(2)]
        for layer in layers:
            layer.build((None, 1))
        variables = [layer.trainable_weights[0] for layer in layers]
        if IS_KERAS_3:
            optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.25), initial_scale=8.0)
            optimizer.build(variables)
        else:
            optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.25), initial_scale=8.0)

        def step(x: Any) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(layers[0].kernel * x) + tf.reduce_sum(layers[1].kernel)
                scaled = optimizer.scale_loss(loss) if IS_KERAS_3 else optimizer.get_scaled_loss(loss)
            tape = hvd.PartialDistributedGradientTape(tape, local_layers=layers[0], scale_local_gradients=False)
            gradients = tape.gradient(scaled, variables)
            if not IS_KERAS_3:
                gradients = optimizer.get_unscaled_gradients(gradients)
            optimizer.apply_gradients(zip(gradients, variables, strict=True))

        run = tf.function(step) if how == "graph" else step
        found = []
        for bad in (True, False):
            run(tf.constant(np.inf if bad and hvd.rank() == 1 else hvd.rank() + 1.0))
            found.append([float(np.squeeze(layer.kernel.numpy())) for layer in layers])
        scale = optimizer.dynamic_scale if IS_KERAS_3 else optimizer.loss_scale
        return found[0], found[1], float(scale)

    for rank, (first, last, scale) in enumerate(two.run(train, how)):
        assert first == [1.0, 1.0]
        assert last == [1.0 - 0.25 * (rank + 1), 0.75]
        assert scale == 4.0
