"""Each argument of DistributedOptimizer, what it saves and loads, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fitting import (
    BACKEND,
    IS_KERAS_3,
    MODES,
    SOME_MODES,
    Plan,
    alone,
    assert_close,
    data,
    make_model,
    make_optimizer,
    tensors_of,
    together,
    weights_of,
)
from ranks import Ranks

pytestmark = pytest.mark.multiprocess

FIXED = {"learning_rate": 0.1}


@pytest.mark.parametrize("mode", SOME_MODES)
@pytest.mark.parametrize(
    "options",
    [
        {"gradient_predivide_factor": 2.5, "groups": 2, "name": "mine", "sparse_as_dense": True},
        pytest.param({"gradient_predivide_factor": 2.5}, marks=pytest.mark.slow),
        pytest.param({"groups": 2}, marks=pytest.mark.slow),
        pytest.param({"name": "mine", "num_groups": 3, "sparse_as_dense": True}, marks=pytest.mark.slow),
    ],
    ids=["all", "predivide", "groups", "others"],
)
def test_options_that_change_no_result(two: Ranks, mode: str, options: dict[str, Any]) -> None:
    plan = Plan(mode=mode, options=options)
    for weights in two.run(together, plan):
        assert_close(weights, alone(plan))


def test_compression_is_within_what_float16_has(two: Ranks) -> None:
    def compressed(plan: Plan) -> list[Any]:
        import ciranda.keras as hvd

        plan.options["compression"] = hvd.Compression.fp16
        return together(plan)

    plan = Plan(settings=FIXED)
    first, second = two.run(compressed, plan)
    assert_close(first, second, 0)
    assert_close(first, alone(plan), 3e-3)
    with pytest.raises(AssertionError):
        assert_close(first, alone(plan), 1e-9)


OTHER_CLIPS = [pytest.param(name, marks=pytest.mark.slow) for name in ("clipnorm", "clipvalue")]


@pytest.mark.parametrize("clip", [*OTHER_CLIPS, "global_clipnorm"])
def test_what_is_clipped_is_what_one_process_clips(two: Ranks, clip: str) -> None:
    plan = Plan(settings={**FIXED, clip: 0.05})
    for weights in two.run(together, plan):
        assert_close(weights, alone(plan))


@pytest.mark.skipif(not IS_KERAS_3, reason="Keras 2 accumulates in no way of its own to compare with")
@pytest.mark.parametrize("mode", SOME_MODES)
@pytest.mark.parametrize("averages", [pytest.param(True, marks=pytest.mark.slow), False])
def test_accumulated_passes(two: Ranks, mode: str, averages: bool) -> None:
    """Two passes of batches of 16, one after the other; then gradients of both are combined."""
    rate = 0.1 if averages else 0.05
    expected = Plan(mode=mode, n_samples=64, settings={"learning_rate": 0.1, "gradient_accumulation_steps": 2})
    options = {"backward_passes_per_step": 2, "average_aggregated_gradients": averages}
    plan = Plan(mode=mode, n_samples=64, settings={"learning_rate": rate}, options=options)
    for weights in two.run(together, plan):
        assert_close(weights, alone(expected))


def test_sum_is_what_size_times_the_rate_is(two: Ranks) -> None:
    def summed(plan: Plan) -> list[Any]:
        import ciranda.keras as hvd

        plan.options["op"] = hvd.Sum
        return together(plan)

    for weights in two.run(summed, Plan(settings={"learning_rate": 0.05})):
        assert_close(weights, alone(Plan(settings=FIXED)))


def test_a_schedule(two: Ranks) -> None:
    def scheduled() -> tuple[list[Any], list[Any]]:
        import fitting
        import keras

        def optimizer(plan: Plan) -> Any:
            return keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.2, 2, 0.5))

        fitting.make_optimizer = optimizer
        try:
            return together(Plan()), alone(Plan())
        finally:
            fitting.make_optimizer = make_optimizer

    for weights, expected in two.run(scheduled):
        assert_close(weights, expected)


def test_process_sets_and_local_layers(worlds: Any) -> None:
    """Ranks 0 and 1 train together, rank 2 alone; then all, but for the first layer, whose gradients are each's own."""

    def steps() -> tuple[list[Any], list[Any], list[Any]]:
        import keras
        import numpy as np

        import ciranda.keras as hvd

        pair = hvd.add_process_set(hvd.ProcessSet([0, 1]))
        found = []
        for scales in (None, True, False):
            model = make_model(0)
            variables = model.trainable_variables
            sgd = keras.optimizers.SGD(1.0)
            if scales is None:
                optimizer = hvd.DistributedOptimizer(sgd, process_set=pair)
            else:
                layers = [model.get_layer("first")]
                optimizer = hvd.PartialDistributedOptimizer(sgd, local_layers=layers, scale_local_gradients=scales)
            before = model.get_weights()
            gradients = [np.full(variable.shape, 3.0 * hvd.rank(), np.float32) for variable in variables]
            optimizer.apply_gradients(zip(tensors_of(gradients), variables, strict=True))
            found.append([float(np.mean(old - new)) for old, new in zip(before, model.get_weights(), strict=True)])
        hvd.remove_process_set(pair)
        return tuple(found)

    for rank, (in_set, scaled, unscaled) in enumerate(worlds.of(3).run(steps)):
        np.testing.assert_allclose(in_set, [1.5 if rank < 2 else 6.0] * 4, rtol=1e-5)
        np.testing.assert_allclose(scaled, [rank, rank, 3.0, 3.0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(unscaled, [3.0 * rank, 3.0 * rank, 3.0, 3.0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", SOME_MODES)
def test_a_rank_all_of_whose_layers_are_local(two: Ranks, mode: str) -> None:
    """It has nothing to combine; the other, which has, is told, and does not wait for it. Where both have none, both
    train."""

    def train(which: list[int], groups: int | None) -> Any:
        import keras

        import ciranda.keras as hvd

        x, y = data(16)
        model = make_model(0)
        local = model.layers if hvd.rank() in which else [model.get_layer("first")]
        sgd = keras.optimizers.SGD(0.1)
        model.compile(hvd.PartialDistributedOptimizer(sgd, local_layers=local, groups=groups), "mse", **MODES[mode])
        model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
        return weights_of(model)  # which raises what became of steps that were made in the background

    for error in two.errors(train, [1], 2 if BACKEND == "tensorflow" else None):
        assert "Ranks disagree about 'DistributedOptimizer.SGD." in str(error)
        assert "reduce op average on rank 0 but logical_and on rank 1" in str(error)
    for ours, theirs in zip(*two.run(train, [0, 1], None), strict=True):
        assert_close([ours], [theirs])


@pytest.mark.slow
@pytest.mark.parametrize("averages", [True, False])
def test_accumulated_passes_of_local_layers(two: Ranks, averages: bool) -> None:
    """What is left to each rank is accumulated like the rest, and divided by the number of ranks once."""

    def steps(averages: bool) -> list[list[float]]:
        import keras
        import numpy as np

        import ciranda.keras as hvd

        model = make_model(0)
        variables = model.trainable_variables
        optimizer = hvd.PartialDistributedOptimizer(
            keras.optimizers.SGD(1.0),
            local_layers=[model.get_layer("first")],
            backward_passes_per_step=2,
            average_aggregated_gradients=averages,
        )
        before = model.get_weights()
        found = []
        for number in (1.0, 3.0):
            own = [np.full(variable.shape, number * (hvd.rank() + 1), np.float32) for variable in variables]
            optimizer.apply_gradients(zip(tensors_of(own), variables, strict=True))
            found.append([float(np.mean(old - new)) for old, new in zip(before, model.get_weights(), strict=True)])
        return found

    for rank, (first, second) in enumerate(two.run(steps, averages)):
        total = 2.0 if averages else 4.0
        np.testing.assert_allclose(first, [0.0] * 4, atol=1e-6)
        local = total * (rank + 1) / 2
        np.testing.assert_allclose(second, [local, local, 1.5 * total, 1.5 * total], rtol=1e-5)


@pytest.mark.parametrize("who", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_averages_while_a_rank_has_joined(worlds: Any, who: int) -> None:
    """The divisor is the number of those that take part, or of all: as of `allreduce()`."""

    def steps(who: int) -> list[float]:
        import keras
        import numpy as np

        import ciranda.keras as hvd

        if hvd.rank() == who:
            hvd.join()
            return []
        found = []
        for options in ({}, {"divisor": "contributors", "name": "joined"}, {"divisor": "world"}):
            model = make_model(0)
            variables = model.trainable_variables
            optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), **options)
            gradients = [np.full(variable.shape, 6.0, np.float32) for variable in variables]
            before = model.get_weights()
            optimizer.apply_gradients(zip(tensors_of(gradients), variables, strict=True))
            changes = {
                round(float(np.mean(old - new)), 3) for old, new in zip(before, model.get_weights(), strict=True)
            }
            found += list(changes)
        hvd.join()
        return found

    of_ranks = worlds.of(3).run(steps, who)
    assert [found for found in of_ranks if found] == [[6.0, 6.0, 4.0]] * 2


@pytest.mark.skipif(not IS_KERAS_3, reason="the optimizers of Keras 2 refuse Adasum")
def test_adasum_combines_the_steps(two: Ranks) -> None:
    def step() -> tuple[list[Any], list[Any]]:
        import keras
        import numpy as np

        import ciranda
        import ciranda.keras as hvd

        model = make_model(0)
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.5), op=hvd.Adasum)
        generator = np.random.default_rng(hvd.rank())
        gradients = [generator.normal(size=weight.shape).astype(np.float32) for weight in model.get_weights()]
        before = model.get_weights()
        optimizer.apply_gradients(zip(tensors_of(gradients), model.trainable_variables, strict=True))
        expected = [ciranda.allreduce(-0.5 * own, op=hvd.Adasum) for own in gradients]
        return [new - old for old, new in zip(before, model.get_weights(), strict=True)], expected

    for changes, expected in two.run(step):
        assert_close(changes, expected, 1e-6)


def test_saved_and_loaded(two: Ranks, tmp_path: Path) -> None:
    """What is saved needs no Ciranda; load_model() goes on where training was, also of a model without Ciranda."""
    plain = tmp_path / "plain.keras"

    def train(path: str, plain: str) -> tuple[str, bool, list[Any]]:
        import keras
        from fitting import BATCH, data

        import ciranda.keras as hvd

        x, y = data()
        model = hvd.load_model(plain)
        names = {type(model.optimizer).__name__}
        for _ in range(2):
            model.fit(hvd.GlobalBatches(x, y, batch_size=BATCH), shuffle=False, verbose=0)
            if hvd.rank() == 0:
                model.save(path)
            hvd.barrier()
            model = hvd.load_model(path)
            names.add(type(model.optimizer).__name__)
        without = keras.models.load_model(path).optimizer
        return str(names), hasattr(without, "register_local_var"), model.get_weights()

    plan = Plan(optimizer="Adam", settings={"learning_rate": 0.01}, epochs=1)
    model = make_model(0)
    model.compile(make_optimizer(plan), "mse")
    from fitting import data

    x, y = data()
    model.fit(x, y, batch_size=16, shuffle=False, verbose=0)
    model.save(plain)
    model.fit(x, y, batch_size=16, shuffle=False, verbose=0, epochs=2)
    for names, is_distributed, weights in two.run(train, str(tmp_path / "both.keras"), str(plain)):
        assert names == "{'Adam'}"
        assert not is_distributed
        assert_close(weights, model.get_weights())


def test_an_optimizer_of_ones_own_is_loaded(two: Ranks, tmp_path: Path) -> None:
    def load(path: str) -> tuple[str, float]:
        import keras

        import ciranda.keras as hvd

        class Mine(keras.optimizers.SGD):
            pass

        model = make_model(0)
        model.compile(hvd.DistributedOptimizer(Mine(0.25)), "mse")
        if hvd.rank() == 0:
            model.save(path)
        hvd.barrier()
        optimizer = hvd.load_model(path, custom_optimizers=[Mine]).optimizer
        assert isinstance(optimizer, Mine)
        again = optimizer.from_config(optimizer.get_config())
        assert type(again) is type(optimizer)
        return type(again).__name__, float(again.learning_rate)

    assert two.run(load, str(tmp_path / "mine.keras")) == [("Mine", 0.25)] * 2


def test_one_that_only_one_rank_has_wrapped(two: Ranks) -> None:
    def train(name: str | None) -> None:
        import keras
        from fitting import data

        import ciranda.keras as hvd

        x, y = data(8)
        if hvd.rank() == 1:
            hvd.DistributedOptimizer(keras.optimizers.SGD())
        model = make_model(0)
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(), name=name), "mse")
        model.fit(x, y, verbose=0)

    for error in two.errors(train, None):
        assert "without a name is number" in str(error)
    two.run(train, "mine")

    def align() -> None:
        import keras

        import ciranda.keras as hvd

        for _ in range(2):
            if hvd.rank() == 0:
                hvd.DistributedOptimizer(keras.optimizers.SGD())

    two.run(align)


def test_refusals(two: Ranks) -> None:
    def refusals() -> list[str]:
        import keras

        import ciranda.keras as hvd

        distributed = hvd.DistributedOptimizer(keras.optimizers.SGD())
        unbuilt = keras.layers.Dense(3)
        calls = [
            lambda: hvd.DistributedOptimizer(distributed),
            lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), gradient_predivide_factor=2.0, op=hvd.Sum),
            *[
                lambda factor=factor: hvd.DistributedOptimizer(keras.optimizers.SGD(), gradient_predivide_factor=factor)
                for factor in (0.0, float("nan"))
            ],
            lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), backward_passes_per_step=0),
            lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), groups=-1),
            lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), groups=["a"]),
            lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), divisor="all"),
            lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), process_set=hvd.ProcessSet([0])),
            lambda: hvd.PartialDistributedOptimizer(keras.optimizers.SGD(), local_layers=[3]),
            lambda: hvd.PartialDistributedOptimizer(keras.optimizers.SGD(), local_layers=unbuilt),
        ]
        found = []
        for call in calls:
            try:
                call()
            except ValueError as error:
                found.append(str(error))
        return found

    words = [
        "already",
        "op=Average",
        "other than 0",
        "other than 0",
        "at least 1",
        "at least 1",
        "lists",
        "divisor",
        "add",
        "layers of Keras",
        "no variables yet",
    ]
    for messages in two.run(refusals):
        assert len(messages) == len(words)
        for word, message in zip(words, messages, strict=True):
            assert word in message, message


def test_the_methods_of_keras_that_it_relies_on() -> None:
    """Should a version of Keras lack these, gradients would be used as they are: see ciranda.keras.optimizer."""
    import keras

    if IS_KERAS_3:
        for name in ("_backend_apply_gradients", "_clip_gradients"):
            assert callable(getattr(keras.optimizers.Optimizer, name)), name
        assert callable(keras.optimizers.LossScaleOptimizer.check_finite)
    assert BACKEND in ("tensorflow", "jax", "torch")


def test_versions_of_keras_that_are_refused() -> None:
    from ciranda.keras import _versions

    for version in ("3.0.5", "3.4.1"):
        with pytest.raises(ImportError, match=f"3.5 and newer, and keras {version} is installed"):
            _versions.check(version)
    for version in ("2.15.0", "3.5.0", "3.15.1", "4.0.0"):
        _versions.check(version)
