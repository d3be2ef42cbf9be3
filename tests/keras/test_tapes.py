"""What TensorFlow has beside Keras: tapes, optimizers of TensorFlow 1, batch normalization, variables and objects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fitting import BACKEND
from ranks import Ranks

pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.skipif(BACKEND != "tensorflow", reason="for TensorFlow"),
]


def gradients_of(options: dict[str, Any], how: str, steps: int = 1) -> tuple[list[Any], int]:
    """Return this rank's gradients by a tape, and how many operations they were."""
    import tensorflow as tf

    import ciranda.tensorflow as hvd

    rank = hvd.rank()
    variables = [tf.Variable(np.full(3 + index, index + 1.0), dtype=tf.float32) for index in range(3)]
    table = tf.Variable(np.ones((4, 2)), dtype=tf.float32)
    local = options.pop("local", False)
    if options.get("groups") == "lists":
        options["groups"] = [[variables[1], variables[0]], [variables[2]]]  # the table goes alone

    def step() -> Any:
        tape = hvd.DistributedGradientTape(tf.GradientTape(), **options)
        if local:
            tape.register_local_source(variables[0])
        with tape:
            loss = tf.add_n([tf.reduce_sum(variable**2) * float(rank + 1) for variable in variables[:2]])
            loss += tf.reduce_sum(tf.gather(table, [rank, 3])) * float(rank + 1)
        return tape.gradient(loss, {"dense": variables, "table": table})

    run = {"eager": step, "graph": tf.function(step), "xla": tf.function(step, jit_compile=True)}[how]
    for _ in range(steps):
        found = run()
    dense = [None if gradient is None else gradient.numpy() for gradient in found["dense"]]
    return dense, tf.convert_to_tensor(found["table"]).numpy()


@pytest.mark.parametrize("how", ["eager", "graph"])
def test_gradients_of_all_ranks(world: Ranks, how: str) -> None:
    """Also of one that nothing depends on, and sparse ones."""
    mean = (world.n_ranks + 1) / 2
    total = mean * world.n_ranks
    table = np.zeros((4, 2))
    for rank in range(world.n_ranks):
        table[rank] += rank + 1
        table[3] += rank + 1

    def check(options: dict[str, Any], factor: float, local: bool = False) -> None:
        for rank, (dense, sparse) in enumerate(world.run(gradients_of, options, how, 2)):
            own = (rank + 1) / (1 if options.get("scale_local_gradients") is False else world.n_ranks)
            np.testing.assert_allclose(dense[0], np.full(3, 2.0) * (own if local else factor), rtol=1e-6)
            np.testing.assert_allclose(dense[1], np.full(4, 4.0) * factor, rtol=1e-6)
            assert dense[2] is None
            np.testing.assert_allclose(sparse, table * factor / total, rtol=1e-6)

    check({}, mean)
    check({"op": 1}, total)
    check({"gradient_predivide_factor": 3.0}, mean)
    check({"sparse_as_dense": True}, mean)
    check({"groups": 2}, mean)
    check({"groups": "lists"}, mean)
    check({"local": True}, mean, local=True)
    check({"local": True, "scale_local_gradients": False}, mean, local=True)


def test_averages_while_a_rank_has_joined(worlds: Any) -> None:
    """By a tape, and an optimizer of TensorFlow 1: of dense gradients and IndexedSlices alike."""

    def averages(module: str, divisor: str | None) -> list[float]:
        import importlib

        import tensorflow as tf

        hvd = importlib.import_module(module)
        if hvd.rank() == 1:
            hvd.join()
            return []
        found = []
        options = {} if divisor is None else {"divisor": divisor}
        dense, table = tf.Variable(tf.zeros(2)), tf.Variable(tf.zeros((3, 1)))

        def step() -> Any:
            with tf.GradientTape() as tape:
                loss = 6.0 * (tf.reduce_sum(dense) + tf.reduce_sum(tf.gather(table, [0])))
            gradients = hvd.DistributedGradientTape(tape, **options).gradient(loss, [dense, table])
            return gradients[0], tf.reduce_sum(tf.convert_to_tensor(gradients[1]))

        for run in (step, tf.function(step)):
            ours, rows = run()
            # Both ranks that are left have row 0.
            found += [float(ours[0]), float(rows)]
        optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(1.0), **options)
        pairs = optimizer.compute_gradients(lambda: 6.0 * tf.reduce_sum(dense), [dense])
        found.append(float(pairs[0][0][0]))
        hvd.join()
        return found

    three = worlds.of(3)
    of_those_left, of_all = [[6.0] * 5], [[4.0] * 5]
    for module, divisor, expected in (
        ("ciranda.tensorflow", None, of_those_left),
        ("ciranda.tensorflow", "world", of_all),
        ("horovod.tensorflow", None, of_all),
    ):
        of_ranks = three.run(averages, module, divisor)
        assert [of_ranks[0], of_ranks[2]] == expected * 2, (module, divisor)


def test_compiled(two: Ranks) -> None:
    for dense, _ in two.run(gradients_of, {"sparse_as_dense": True}, "xla", 2):
        np.testing.assert_allclose(dense[0], np.full(3, 3.0), rtol=1e-6)
        np.testing.assert_allclose(dense[1], np.full(4, 6.0), rtol=1e-6)


def test_what_a_tape_refuses(two: Ranks) -> None:
    def refusals() -> list[str]:
        import tensorflow as tf

        import ciranda.tensorflow as hvd

        found = []
        for options in (
            {"op": hvd.Sum, "gradient_predivide_factor": 2.0},
            {"gradient_predivide_factor": 0.0},
            {"groups": 0},
            {"divisor": "all"},
            {"process_set": hvd.ProcessSet([0])},
        ):
            try:
                hvd.DistributedGradientTape(tf.GradientTape(), **options)
            except ValueError as error:
                found.append(str(error))
        try:
            hvd.DistributedGradientTape(hvd.DistributedGradientTape(tf.GradientTape()))
        except ValueError as error:
            found.append(str(error))
        return found

    words = ["op=Average", "other than 0", "at least 1", "divisor", "add", "already"]
    for messages in two.run(refusals):
        assert len(messages) == len(words)
        for word, message in zip(words, messages, strict=True):
            assert word in message, message


def test_partial_tape(two: Ranks) -> None:
    def split() -> Any:
        import keras
        import tensorflow as tf

        import ciranda.tensorflow as hvd

        layers = [keras.layers.Dense(2, use_bias=False), keras.layers.Dense(1, use_bias=False)]
        x = tf.ones((1, 2)) * float(hvd.rank() + 1)
        for layer in layers:
            layer.build((None, 2))
            layer.set_weights([np.ones(layer.get_weights()[0].shape)])
        tape = hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=layers[:1])
        with tape:
            loss = tf.reduce_sum(layers[1](layers[0](x)))
        sources = [layer.trainable_weights[0] for layer in layers]
        local, shared = tape.get_local_and_global_gradients(loss, sources)
        assert local[0][0] is sources[0]
        return [float(np.mean(pair[1])) for pair in (*local, *shared)]

    (local_0, shared_0), (local_1, shared_1) = two.run(split)
    assert (local_0, local_1) == (0.5, 1.0)
    assert shared_0 == shared_1 == 3.0


@pytest.mark.parametrize("how", ["eager", "graph"])
def test_a_rank_all_of_whose_sources_are_local(two: Ranks, how: str) -> None:
    """It has nothing to combine; the other, which has, is told, and does not wait for it: of tensors, of IndexedSlices,
    and of both. Where neither has, both get their own."""

    def gradients(how: str, which: list[str], on: list[int]) -> list[float]:
        import tensorflow as tf

        import ciranda.tensorflow as hvd

        variables = {"dense": tf.Variable(tf.ones(2)), "table": tf.Variable(tf.ones((3, 1)))}
        sources = [variables[name] for name in which]

        def step() -> Any:
            tape = hvd.DistributedGradientTape(tf.GradientTape(), scale_local_gradients=False)
            if hvd.rank() in on:
                for source in sources:
                    tape.register_local_source(source)
            with tape:
                loss = tf.reduce_sum(variables["dense"]) + tf.reduce_sum(tf.gather(variables["table"], [1]))
                loss *= hvd.rank() + 1.0
            return [tf.reduce_sum(tf.convert_to_tensor(each)) for each in tape.gradient(loss, sources)]

        try:
            return [float(each) for each in (tf.function(step) if how == "graph" else step)()]
        except tf.errors.OpError as error:
            raise hvd.as_ciranda_error(error) from error

    for which, other in ((["dense"], "average"), (["table"], "allgather"), (["table", "dense"], "average")):
        for error in two.errors(gradients, how, which, [1]):
            assert type(error).__name__ == "MismatchError"
            assert "DistributedGradientTape.0" in str(error)
            assert f"{other} on rank 0 but" in str(error)
    assert two.run(gradients, how, ["table", "dense"], [0, 1]) == [[1.0, 2.0], [2.0, 4.0]]


@pytest.mark.parametrize("how", ["eager", "graph"])
def test_batch_normalization_of_all_ranks(world: Ranks, how: str) -> None:
    """Ranks have batches of different size; results, gradients and moving statistics are those of the whole batch."""
    generator = np.random.default_rng(3)
    whole = (100 + generator.normal(size=(12, 4, 3)) * [1, 2, 3]).astype(np.float32)
    slopes = generator.normal(size=whole.shape).astype(np.float32)
    bounds = np.cumsum([0, *range(1, world.n_ranks), 12 - sum(range(1, world.n_ranks))])

    def normalized(x: Any, slope: Any, synchronized: bool, how: str) -> Any:
        import tensorflow as tf

        import ciranda.tensorflow as hvd

        make = hvd.SyncBatchNormalization if synchronized else tf.keras.layers.BatchNormalization
        layer = make()
        layer.build(x.shape)

        def step(inputs: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                outputs = layer(inputs, training=True)
                loss = tf.reduce_sum(outputs * slope)
            sources = [inputs, *[getattr(weight, "value", weight) for weight in layer.trainable_weights]]
            sources = [source() if callable(source) else source for source in sources]
            return outputs, tape.gradient(loss, [inputs])

        run = tf.function(step) if how == "graph" else step
        outputs, (gradient,) = run(tf.constant(x))
        return outputs.numpy(), gradient.numpy(), layer.get_weights()[2:]

    def expected(x: Any, slope: Any) -> Any:
        return normalized(x, slope, False, "eager")

    outputs, gradient, statistics = world.run(expected, whole, slopes, on=[0])[0]

    def of_part(x: Any, slope: Any, bounds: Any, how: str) -> Any:
        import ciranda

        part = slice(bounds[ciranda.rank()], bounds[ciranda.rank() + 1])
        return normalized(x[part], slope[part], True, how)

    for rank, (own, own_gradient, moving) in enumerate(world.run(of_part, whole, slopes, bounds, how)):
        part = slice(bounds[rank], bounds[rank + 1])
        np.testing.assert_allclose(own, outputs[part], rtol=1e-3, atol=2e-4)
        np.testing.assert_allclose(own_gradient, gradient[part], rtol=1e-3, atol=2e-4)
        for ours, theirs in zip(moving, statistics, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4)


@pytest.mark.parametrize("averages", [True, False])
@pytest.mark.parametrize("how", ["session", "eager"])
def test_optimizers_of_tensorflow_1(two: Ranks, how: str, averages: bool) -> None:
    """Two passes accumulate; the gradient of rank r in pass p is (r + 1) * p."""

    def train(how: str, averages: bool) -> list[float]:
        import tensorflow as tf

        import ciranda.tensorflow as hvd

        options = {"backward_passes_per_step": 2, "average_aggregated_gradients": averages}
        factor = float(hvd.rank() + 1)

        def make() -> Any:
            return hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(1.0), **options)

        if how == "eager":
            variable, optimizer, seen = tf.Variable([0.0, 0.0]), make(), []
            for number in range(1, 5):
                pairs = optimizer.compute_gradients(lambda: tf.reduce_sum(variable) * factor * number, [variable])  # noqa: B023
                optimizer.apply_gradients(pairs)
                seen.append(float(variable.numpy()[0]))
            return seen
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            variable = tf.compat.v1.get_variable("v", initializer=[float(hvd.rank()), 0.0], use_resource=True)
            number = tf.compat.v1.placeholder(tf.float32, [])
            step = make().minimize(tf.reduce_sum(variable) * factor * number, var_list=[variable])
            session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
            session.run(hvd.broadcast_global_variables(0))
            seen = []
            for count in range(1, 5):
                session.run(step, {number: float(count)})
                seen.append(float(session.run(variable)[0]))
            return seen

    unit = 1.5 / (2 if averages else 1)
    for seen in two.run(train, how, averages):
        assert seen == pytest.approx([0.0, -3 * unit, -3 * unit, -10 * unit])


def test_adasum_of_tensorflow_1(two: Ranks) -> None:
    def train() -> tuple[Any, Any]:
        import tensorflow as tf

        import ciranda
        import ciranda.tensorflow as hvd

        own = np.array([1.0, 2.0 * hvd.rank(), -1.0], np.float32)
        variable = tf.Variable(np.zeros(3, np.float32))
        optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.5), op=hvd.Adasum)
        optimizer.apply_gradients([(tf.constant(own), variable)])
        return variable.numpy(), ciranda.allreduce(-0.5 * own, op=hvd.Adasum)

    for got, expected in two.run(train):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_variables_and_objects(world: Ranks) -> None:
    def share() -> Any:
        import tensorflow as tf

        import ciranda.tensorflow as hvd

        variables = [tf.Variable([float(hvd.rank())] * 3), tf.Variable(hvd.rank(), dtype=tf.int64)]
        hvd.broadcast_variables(variables, root_rank=1)
        objects = hvd.allgather_object({"rank": hvd.rank()})
        shared = hvd.broadcast_object_fn(root_rank=1)(("from", hvd.rank()))
        errors = []
        for call in (lambda: hvd.broadcast_global_variables(0), lambda: hvd.SyncBatchNormalization(fused=True)):
            try:
                call()
            except (RuntimeError, ValueError) as error:
                errors.append(str(error))
        return [variable.numpy().tolist() for variable in variables], objects, shared, errors

    for values, objects, shared, errors in world.run(share):
        assert values == [[1.0] * 3, 1]
        assert objects == [{"rank": rank} for rank in range(world.n_ranks)]
        assert shared == ("from", 1)
        assert "broadcast_variables" in errors[0]
        assert "fused" in errors[1]
