"""The callbacks, against what Horovod's documentation says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fitting import GRAPH, IS_KERAS_3, MODES, SOME_MODES, data, make_model, value_of, weights_of
from ranks import Ranks

pytestmark = pytest.mark.multiprocess


def test_variables_are_those_of_the_root(two: Ranks) -> None:
    """All but the local ones; also the optimizer's, and before the first step."""

    def train() -> tuple[list[Any], list[Any], list[Any]]:
        import keras

        import ciranda.keras as hvd

        x, y = data(16)
        seen = []

        class Watch(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                seen.append(self.model.get_weights())

        model = make_model(hvd.rank())
        mine = model.get_weights()
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(float(hvd.rank() + 1))), "mse", **MODES[GRAPH])
        local = model.get_layer("last").bias
        start = hvd.callbacks.BroadcastGlobalVariablesCallback(1, local_variables=local)
        model.fit(x, y, batch_size=16, verbose=0, callbacks=[start, Watch()])
        return mine, seen[0], value_of(model.optimizer.learning_rate)

    (first, start_0, rate_0), (second, start_1, rate_1) = two.run(train)
    for index in range(4):
        np.testing.assert_array_equal(start_1[index], second[index])
        np.testing.assert_array_equal(start_0[index], (first if index == 3 else second)[index])
    assert (rate_0, rate_1) == (2.0, 2.0)


def test_models_that_differ_are_told(two: Ranks) -> None:
    """In number of variables, or shape: else a rank would wait for what the other does not have."""

    def start(case: str) -> None:
        import keras

        import ciranda.keras as hvd

        x, y = data(8)
        odd = hvd.rank() == 1
        model = make_model(0)
        if case == "number":
            model.add(keras.layers.Dense(3, use_bias=odd))
        else:
            model.add(keras.layers.Dense(4 if odd else 3))
            y = np.ones((8, 4 if odd else 3))
        model.compile(keras.optimizers.SGD(0.1), "mse", **MODES[GRAPH])
        model.build((None, 5))
        model.fit(x, y, verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

    for case, words in (("number", "number of tensors"), ("shape", "shape of tensor 4 of the group [3, 3]")):
        for error in two.errors(start, case):
            assert "'BroadcastGlobalVariablesCallback'" in str(error)
            assert words in str(error)


def test_models_that_are_not_built_on_all_ranks(two: Ranks) -> None:
    """The callback waits for the first batch, on all ranks; what is called with no variables says so, to all."""

    def train() -> list[Any]:
        import keras

        import ciranda.keras as hvd

        x, y = data(16)
        model = keras.Sequential([keras.layers.Dense(3, kernel_initializer=keras.initializers.Constant(hvd.rank()))])
        if hvd.rank() == 0:
            model.build((None, 5))
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse", **MODES[GRAPH])
        start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
        model.fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[start])
        return model.get_weights()

    first, second = two.run(train)
    for ours, theirs in zip(first, second, strict=True):
        np.testing.assert_array_equal(ours, theirs)

    def broadcast(case: str, which: list[int]) -> None:
        import keras

        import ciranda.keras as hvd

        model = keras.Sequential([keras.layers.Dense(3)])
        if hvd.rank() in which:
            model.build((None, 5))
        if case == "model":
            hvd.broadcast_global_variables(0, model)
        else:
            hvd.broadcast_variables(model.variables if hvd.rank() in which else [], 0)

    for case in ("model", "variables"):
        for which in ([0], [1]):
            for error in two.errors(broadcast, case, which):
                assert "number of tensors" in str(error)
                assert "has not been built yet has no variables" in str(error)
    for error in two.errors(broadcast, "model", []):
        assert "call model.build(input_shape)" in str(error)
    two.run(broadcast, "variables", [])
    two.run(broadcast, "model", [0, 1])


def test_metrics_are_averages(world: Ranks) -> None:
    def train(weight: bool) -> tuple[float, float, float]:
        import keras

        import ciranda.keras as hvd

        x, y = data(8 * (hvd.rank() + 1))
        found = []

        class Watch(keras.callbacks.Callback):
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                found.append(dict(logs))

        model = make_model(0)
        model.compile(keras.optimizers.SGD(0.0), "mse", metrics=["mae"])
        average = hvd.callbacks.MetricAverageCallback(weight=len(x) if weight else None)
        model.fit(x, y, batch_size=64, validation_data=(x, y), verbose=0, callbacks=[Watch(), average, Watch()])
        assert set(found[0]) == {"loss", "mae", "val_loss", "val_mae"}
        return found[0]["val_mae"], found[1]["val_mae"], found[1]["loss"]

    for weighted in (False, True):
        results = world.run(train, weighted)
        weights = [rank + 1 for rank in range(world.n_ranks)] if weighted else None
        expected = np.average([own for own, _, _ in results], weights=weights)
        for _, average, loss in results:
            assert average == pytest.approx(expected, rel=1e-6)
            assert loss == results[0][2]


def test_ranks_that_make_fewer_steps_are_told(two: Ranks) -> None:
    """Before the first step; without the callback, the others would wait for their gradients."""

    def train() -> list[str]:
        import keras

        import ciranda.keras as hvd

        x, y = data(16 + 8 * hvd.rank())
        model = make_model(0)
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
        average = hvd.callbacks.MetricAverageCallback()
        with pytest.raises(hvd.errors.MismatchError, match="2 on rank 0, 3 on rank 1"):
            model.fit(x, y, batch_size=8, verbose=0, callbacks=[average])
        pairs = ((x[at : at + 8], y[at : at + 8]) for at in (0, 8))
        return list(model.fit(pairs, verbose=0, callbacks=[average]).history)

    assert two.run(train) == [["loss"]] * 2


@pytest.mark.parametrize("mode", SOME_MODES)
def test_ranks_whose_data_end_before_those_of_others_are_told(worlds: Any, mode: str) -> None:
    """At the end of the epoch, where data do not say how long they are: on all ranks, of which two wait in a step; and
    at the end of training, which one rank stops."""

    def train(which: str) -> str:
        import keras

        import ciranda.keras as hvd

        x, y = data(24)
        model = make_model(0)
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), groups=2), "mse", **MODES[mode])
        is_first = hvd.rank() == 1
        if which == "epoch 0":
            pairs = ((x[at : at + 8], y[at : at + 8]) for at in range(0, 16 if is_first else 24, 8))
            arguments = {"x": pairs, "callbacks": []}
        else:
            stop = keras.callbacks.EarlyStopping(
                "loss", min_delta=1e9 if is_first else 0.0, patience=1 if is_first else 9
            )
            arguments = {"x": x[:8], "y": y[:8], "epochs": 3, "callbacks": [stop]}
        arguments["callbacks"] = [*arguments["callbacks"], hvd.callbacks.MetricAverageCallback()]
        with pytest.raises(Exception, match="Ranks disagree about 'DistributedOptimizer") as caught:
            model.fit(**arguments, verbose=0)
        hvd.allreduce(1.0, name="all are back")
        return f"{type(caught.value).__name__}: {caught.value}"

    for which in ("epoch 0", "training"):
        for rank, text in enumerate(worlds.of(3).run(train, which)):
            assert (f"MismatchError: rank 1 has come to the end of {which}" in text) == (rank == 1)
            assert "average on rank" in text
            assert "logical_or on rank 1" in text


@pytest.mark.parametrize("name", [None, "named"])
def test_metrics_that_only_some_ranks_average_are_told(two: Ranks, name: str | None) -> None:
    """When training begins, on all ranks; the other one's step says so too, by the callback's name, or by its op."""

    def train(name: str | None) -> None:
        import keras

        import ciranda.keras as hvd

        x, y = data(16)
        model = make_model(0)
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), name=name), "mse", **MODES[GRAPH])
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
        if hvd.rank() == 0:
            callbacks.append(hvd.callbacks.MetricAverageCallback())
        model.fit(x, y, batch_size=8, verbose=0, callbacks=callbacks)
        weights_of(model)  # which raises what became of steps that were made in the background

    with_it, without = (str(error) for error in two.errors(train, name))
    assert "rank 0 has come to the start of training with MetricAverageCallback" in with_it
    assert "the same callbacks" in with_it
    assert ("but rank 0 has come to the start of training with MetricAverageCallback" in without) == (name is None)
    assert ("logical_or on rank 0" in without) == (name is not None)


def test_a_metric_that_only_one_rank_has_is_told(two: Ranks) -> None:
    """As where one rank alone validates; the names are compared, since averages of other names would not meet."""

    def train() -> None:
        import keras

        import ciranda.keras as hvd

        x, y = data(16)
        model = make_model(0)
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse", **MODES[GRAPH])
        average = hvd.callbacks.MetricAverageCallback()
        validation = (x, y) if hvd.rank() == 1 else None
        model.fit(x, y, batch_size=8, verbose=0, validation_data=validation, callbacks=[average])

    for error in two.errors(train):
        assert type(error).__name__ == "MismatchError"
        assert "some ranks have metrics that others lack: 'val_loss' on rank 1. Give fit() validation" in str(error)


def rates(
    make: Any, epochs: int = 4, momentum: float = 0.0, legacy: bool = False
) -> tuple[list[float], list[float], list[Any]]:
    """Return the learning rate of each batch, of which there are 4 in an epoch, and those in the history."""
    import keras

    import ciranda.keras as hvd

    x, y = data(32)
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            seen.append(value_of(self.model.optimizer.learning_rate))

    model = make_model(0)
    optimizers = keras.optimizers.legacy if legacy else keras.optimizers
    optimizer = hvd.DistributedOptimizer(optimizers.SGD(0.8, momentum=momentum))
    model.compile(optimizer, "mse", **MODES[GRAPH])
    history = model.fit(x, y, batch_size=8, shuffle=False, epochs=epochs, verbose=0, callbacks=[make(hvd), Watch()])
    return seen, [float(rate) for rate in history.history["lr"]], model.get_weights()


def test_schedules(two: Ranks) -> None:
    def staircase() -> Any:
        return rates(lambda hvd: hvd.callbacks.LearningRateScheduleCallback(0.8, 0.5, start_epoch=1, end_epoch=3))[:2]

    for seen, history in two.run(staircase):
        assert seen == pytest.approx([0.8] * 4 + [0.8] * 4 + [0.4] * 8)
        assert history == pytest.approx([0.8, 0.8, 0.4, 0.4])

    def smooth() -> Any:
        make = lambda hvd: hvd.callbacks.LearningRateScheduleCallback(  # noqa: E731
            0.8, lambda epoch: 1 / (1 + epoch), staircase=False
        )
        return rates(make, epochs=2)[0]

    for seen in two.run(smooth):
        assert seen == pytest.approx([0.8 / (1 + batch / 4) for batch in range(8)])


def test_warm_up(two: Ranks) -> None:
    def warm_up() -> Any:
        return rates(lambda hvd: hvd.callbacks.LearningRateWarmupCallback(0.8, warmup_epochs=2, verbose=1), epochs=3)[
            :2
        ]

    for seen, history in two.run(warm_up):
        # lr / size * (epoch * (size - 1) / warmup + 1), of the end of each batch
        expected = [0.4 * ((batch + 1) / 4 / 2 + 1) for batch in range(8)] + [0.8] * 4
        assert seen == pytest.approx(expected)
        assert history[1:] == pytest.approx([0.8, 0.8])


@pytest.mark.parametrize("correct", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_momentum_is_corrected(two: Ranks, correct: bool) -> None:
    """Velocities are scaled with the rate, which is what a momentum that is scaled for one step does."""

    def corrected(correct: bool, legacy: bool = False) -> Any:
        def make(hvd: Any) -> Any:
            halves = lambda epoch: 1.0 if epoch == 0 else 0.25  # noqa: E731
            return hvd.callbacks.LearningRateScheduleCallback(0.8, halves, momentum_correction=correct)

        return rates(make, epochs=2, momentum=0.9, legacy=legacy)[2]

    x, y = (array.astype(np.float64) for array in data(32))

    def by_hand(correct: bool) -> list[Any]:
        """SGD with momentum, in which the momentum of the step that has a new rate is scaled."""
        weights = [np.array(weight, np.float64) for weight in make_model(0).get_weights()]
        velocities = [np.zeros(weight.shape) for weight in weights]
        for step in range(8):
            rate, momentum = (0.8, 0.9) if step < 4 else (0.2, 0.9)
            if correct and step == 4:
                momentum *= 0.2 / 0.8
            part = slice(step % 4 * 8, step % 4 * 8 + 8)
            pairs = zip(velocities, gradients_of(weights, x[part], y[part]), strict=True)
            velocities = [momentum * velocity - rate * own for velocity, own in pairs]
            weights = [old + velocity for old, velocity in zip(weights, velocities, strict=True)]
        return weights

    for legacy in (False,) if IS_KERAS_3 else (False, True):
        for weights in two.run(corrected, correct, legacy):
            for ours, theirs in zip(weights, by_hand(correct), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


def gradients_of(weights: list[Any], x: Any, y: Any) -> list[Any]:
    """Return the gradients of the mean squared error of the model of `fitting`."""
    first, first_bias, last, last_bias = weights
    hidden = np.tanh(x @ first + first_bias)
    slope = 2 * (hidden @ last + last_bias - y) / y.size
    inner = slope @ last.T * (1 - hidden**2)
    return [x.T @ inner, inner.sum(axis=0), hidden.T @ slope, slope.sum(axis=0)]


def test_a_rate_that_changes_itself_is_refused(two: Ranks) -> None:
    def refused() -> None:
        import keras

        import ciranda.keras as hvd

        x, y = data(8)
        model = make_model(0)
        model.compile(keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.2, 2, 0.5)), "mse")
        model.fit(x, y, verbose=0, callbacks=[hvd.callbacks.LearningRateScheduleCallback(0.1, 0.5)])

    for error in two.errors(refused):
        assert "ExponentialDecay" in str(error)


def test_the_best_model_is_kept_by_rank_0(two: Ranks, tmp_path: Path) -> None:
    def train(folder: str) -> str:
        import ciranda.keras as hvd

        x, y = data(16)
        model = make_model(0)
        model.compile("sgd", "mse")
        best = hvd.callbacks.BestModelCheckpoint(monitor="loss")
        with pytest.raises(ValueError, match="filepath"):
            model.fit(x, y, verbose=0, callbacks=[best])
        best.filepath = f"{folder}/{hvd.rank()}.keras"
        model.fit(x, y, verbose=0, callbacks=[best])
        return best.filepath

    two.run(train, str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.keras"]
