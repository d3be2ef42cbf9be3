"""What ranks run in the tests of ciranda.tensorflow: each function is one test, of all ranks."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from ranks import wait_until

import ciranda
import ciranda.tensorflow as hvd
from ciranda import errors
from ciranda.tensorflow import _plugin

MODES: dict[str, Callable[[Any], Any]] = {
    "eager": lambda function: function,
    "graph": tf.function,
    "xla": lambda function: tf.function(function, jit_compile=True),
}


def close(found: Any, wanted: Any, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(np.asarray(found, np.float64), np.asarray(wanted, np.float64), tolerance, tolerance)


def ended_with(function: Callable[[], Any]) -> BaseException:
    try:
        result = function()
    except Exception as error:
        return error
    raise AssertionError(f"no error, but {result!r}")


def mine(*shape: int) -> Any:
    """A tensor that differs between ranks and elements."""
    return tf.constant(np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 10 * hvd.rank())


def average(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float64).reshape(shape) + 5 * (hvd.size() - 1)


# --- order


def independent_calls(n_calls: int, kinds: int) -> None:
    """Many calls of one graph, traced in another order on each rank, with one thread for all of them."""
    assert tf.config.threading.get_inter_op_parallelism_threads() == 1 or os.environ["TF_NUM_INTEROP_THREADS"] == "1"
    order = np.random.default_rng(hvd.rank()).permutation(n_calls)
    names = ("allreduce", "allgather", "broadcast", "reducescatter", "alltoall")

    def call(index: int, tensor: Any) -> Any:
        kind = names[index % kinds]
        options: dict[str, Any] = {"root_rank": 1} if kind == "broadcast" else {}
        return getattr(hvd, kind)(tensor + float(index), name=f"{kind}.{index}", **options)

    @tf.function(autograph=False)
    def step(tensor: Any) -> dict[str, Any]:
        return {str(index): call(int(index), tensor) for index in order}

    n = hvd.size()
    for _ in range(3):
        results = step(tf.fill([n, 2], float(hvd.rank())))
        for index in range(n_calls):
            kind, found = names[index % kinds], results[str(index)].numpy()
            rank = {"allreduce": (n - 1) / 2, "reducescatter": (n - 1) / 2, "broadcast": 1.0}.get(kind)
            if rank is not None:
                close(found, np.full_like(found, index + rank))
            else:
                rows = np.repeat(np.arange(n), n if kind == "allgather" else 1)[:, None]
                close(found, np.broadcast_to(index + rows, found.shape))


def waits_behind_a_call() -> None:
    """What follows a call in a graph runs on a thread of TensorFlow's, and may wait for other collectives."""

    def wait(tensor: Any) -> Any:
        return ciranda.allreduce(tensor.numpy(), name="behind", op=ciranda.Sum)

    @tf.function
    def step(x: Any) -> Any:
        return tf.py_function(wait, [hvd.allreduce(x, name="before")], tf.float32)

    for _ in range(5):
        close(step(mine(3)), hvd.size() * average(3))


# --- averages and places at run time


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """This rank by itself, and then the world again."""
    hvd.shutdown()
    away = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("CIRANDA_")}
    hvd.init()
    try:
        assert hvd.size() == 1
        yield
    finally:
        hvd.shutdown()
        os.environ.update(away)
        hvd.init()


def programs_outlive_worlds(mode: str) -> None:
    """A function that was traced at one size gives right averages, gradients and places at another."""

    @MODES[mode]
    def program(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(hvd.allreduce(x * x, name="average", prescale_factor=0.5, postscale_factor=4.0))
        return loss, tape.gradient(loss, x), hvd.size_op(), hvd.rank_op(), hvd.local_rank_op(), hvd.local_size_op()

    def check() -> None:
        n, rank = hvd.size(), hvd.rank()
        loss, gradient, *places = program(tf.constant([1.0 + rank, 2.0]))
        close(loss, 2 * (np.mean([(1.0 + each) ** 2 for each in range(n)]) + 4.0))
        close(gradient, 2 * 2 * np.array([1.0 + rank, 2.0]))
        assert [int(each) for each in places] == [n, rank, hvd.local_rank(), hvd.local_size()]

    check()
    with alone():
        check()
    check()


def included_in_sets() -> None:
    some = hvd.add_process_set([0, 2])
    where = tf.function(lambda: (hvd.process_set_included_op(some.process_set_id), hvd.size_op(some.process_set_id)))
    assert [int(each) for each in where()] == [int(hvd.rank() != 1), 2]
    hvd.remove_process_set(some)
    error = ended_with(where)
    assert isinstance(error, tf.errors.InvalidArgumentError), error
    assert "process set" in str(error)


# --- gradients


def gradients(mode: str) -> None:
    n, rank = hvd.size(), hvd.rank()
    scale = 1.0 + rank  # of this rank's loss

    def of(function: Callable[[Any], Any], *, outside: bool) -> Any:
        x = mine(4)
        if outside:
            compiled = MODES[mode](function)
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(compiled(x)) * scale
            return tape.gradient(loss, x)

        @MODES[mode]
        def step(x: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(function(x)) * scale
            return tape.gradient(loss, x)

        return step(x)

    mean = (n + 1) / 2
    for outside in (False, True):
        close(of(lambda x: hvd.allreduce(x, name="mean"), outside=outside), [mean] * 4)
        close(of(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5), outside=outside), [mean * n / 2] * 4)
        close(of(lambda x: hvd.allreduce(x, op=hvd.Max), outside=outside), [mean * n if rank == n - 1 else 0] * 4)
        close(of(lambda x: hvd.broadcast(x, 1), outside=outside), [mean if rank == 1 else 0] * 4)
        together = of(lambda x: tf.add_n(hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum)), outside=outside)
        close(together, [3 * mean * n] * 4)


def gradients_of_what_has_none() -> None:
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = hvd.allreduce(x, op=hvd.Product, name="product")
    assert isinstance(ended_with(lambda: tape.gradient(y, x)), errors.NotSupportedError)


# --- what tensors there are


def slices(mode: str) -> None:
    n, rank = hvd.size(), hvd.rank()
    values = np.full((rank + 1, 2), 1.0 + rank, np.float32)

    def call(values: Any, indices: Any, op: int) -> Any:
        given = tf.IndexedSlices(values, indices, dense_shape=tf.constant([n, 2]))
        result = hvd.allreduce(given, op=op, name=f"slices.{op}", compression=hvd.Compression.fp16)
        return tf.convert_to_tensor(result)

    whole = np.zeros((n, 2))
    for each in range(n):
        whole[: each + 1] += 1.0 + each
    for op, divisor in ((hvd.Sum, 1), (hvd.Average, n)):
        function = MODES[mode](lambda values, indices, op=op: call(values, indices, op))
        close(function(tf.constant(values), tf.range(rank + 1)), whole / divisor)
    mixed = hvd.grouped_allreduce([tf.IndexedSlices(tf.constant(values), tf.range(rank + 1)), mine(2)], name="mixed")
    assert isinstance(mixed[0], tf.IndexedSlices)
    close(mixed[1], average(2))
    wrong = ended_with(lambda: hvd.allreduce(tf.IndexedSlices(tf.constant(values), tf.range(rank + 1)), op=hvd.Min))
    assert isinstance(wrong, errors.InvalidArgumentError), wrong


def slices_without_one(who: int) -> None:
    """Of IndexedSlices while one rank has joined, an average divides as that of tensors does."""
    if hvd.rank() == who:
        hvd.join()
        return
    n = hvd.size() - 1
    given = tf.IndexedSlices(mine(1, 2), tf.constant([0]), dense_shape=tf.constant([1, 2]))
    for divisor, number in (("contributors", n), ("world", n + 1)):
        for mode in ("eager", "graph"):
            call = MODES[mode](lambda values, divisor=divisor: hvd.allreduce(values, divisor=divisor, name="joined"))
            total = sum(10.0 * rank + np.arange(2) for rank in range(n + 1) if rank != who)
            close(tf.convert_to_tensor(call(given)), [total / number], 1e-5)
    hvd.join()


def differing_slices() -> list[str]:
    """Return what ranks are told whose calls differ in what the engine does not do itself."""
    given = tf.IndexedSlices(mine(1, 2), tf.constant([0]), dense_shape=tf.constant([1, 2]))
    is_odd = hvd.rank() == hvd.size() - 1
    said = []
    for options in (
        {"op": hvd.Sum if is_odd else hvd.Average},
        {"op": hvd.Sum, "prescale_factor": 2.0 if is_odd else 3.0},
        {"divisor": "world" if is_odd else "contributors"},
    ):
        for mode in ("eager", "graph"):
            call = MODES[mode](lambda values, options=options: hvd.allreduce(values, name="rows", **options))
            found = hvd.as_ciranda_error(ended_with(lambda call=call: call(given)))
            assert isinstance(found, errors.MismatchError), found
            said.append(str(found))
    return said


def compressed() -> None:
    for compression, dtype in ((hvd.Compression.fp16, tf.float16), (hvd.Compression.bf16, tf.bfloat16)):
        result = hvd.allreduce(mine(5), compression=compression, name="compressed")
        assert result.dtype == tf.float32
        close(result, tf.cast(average(5), dtype), 1e-2)
        counts = hvd.allreduce(tf.range(3), op=hvd.Sum, compression=compression, name="counts")
        assert counts.numpy().tolist() == [0, hvd.size(), 2 * hvd.size()]


def unknown_shapes() -> None:
    """Shapes that are not known when a graph is traced, and those that are."""
    found: dict[str, Any] = {}

    @tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec(None)])
    def step(known: Any, unknown: Any) -> Any:
        outputs = {
            "allreduce": hvd.allreduce(known),
            "any": hvd.allreduce(unknown),
            "allgather": hvd.allgather(tf.ensure_shape(known, [2, 3])),
            "gather any": hvd.allgather(unknown),
            "alltoall": hvd.alltoall(known, splits=[2] + [0] * (hvd.size() - 1))[0],
            "reducescatter": hvd.reducescatter(known),
        }
        found.update({name: output.shape for name, output in outputs.items()})
        return outputs

    outputs = step(mine(2, 3), mine(4))
    assert {name: shape.rank and shape.as_list() for name, shape in found.items()} == {
        "allreduce": [None, 3],
        "any": None,
        "allgather": [None, 3],
        "gather any": None,
        "alltoall": [None, 3],
        "reducescatter": [None, 3],
    }
    close(outputs["allreduce"], average(2, 3))
    close(outputs["any"], average(4))
    assert outputs["gather any"].shape == [4 * hvd.size()]


def variables() -> None:
    kinds = [
        tf.Variable(mine(3)),
        tf.Variable(hvd.rank()),
        tf.keras.Variable(mine(2)) if hasattr(tf.keras, "Variable") else None,
    ]
    given = [each for each in kinds if each is not None]
    assert all(a is b for a, b in zip(hvd.broadcast_(given, 1, name="variables"), given, strict=True))
    for each in given[::2]:
        close(each, np.arange(each.shape[0]) + 10)
    assert int(given[1]) == 1
    given[0].assign(mine(3))
    tf.function(lambda: hvd.broadcast_(given[:1], 2, name="variables"))()
    close(given[0], np.arange(3) + 20)


def weighted(mode: str) -> None:
    n, rank = hvd.size(), hvd.rank()
    weights = np.arange(n) + 1.0
    of_ranks = [np.arange(3) + 10.0 * each for each in range(n)]
    expected = np.average(of_ranks, axis=0, weights=weights)
    call = MODES[mode](
        lambda x, weight: hvd.grouped_allreduce(
            [x, tf.cast(x, tf.float16)], weight=weight, name="weighted", prescale_factor=2.0, postscale_factor=0.25
        )
    )
    wide, half = call(mine(3), tf.constant(1 + rank))
    close(wide, expected / 2)
    assert half.dtype == tf.float16
    close(half, expected / 2, 2e-3)
    x = mine(3)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(hvd.allreduce(x, weight=1.0 + rank, name="weighted")) * (1.0 + rank)
    close(tape.gradient(loss, x), np.full(3, sum(weights) * weights[rank] / sum(weights)))
    for weight in (-1.0 if rank == 1 else 1.0, 0.0, float("nan")):
        wrong = MODES[mode](lambda x, weight=weight: hvd.allreduce(x, weight=weight, name="weighted"))
        if mode == "xla":
            assert np.isnan(wrong(x)).all()
            continue
        found = hvd.as_ciranda_error(ended_with(lambda wrong=wrong: wrong(x)))
        assert isinstance(found, errors.InvalidArgumentError), found
        assert "weights must be finite" in str(found)
    for options in ({"op": hvd.Sum}, {"divisor": "world"}, {"compression": hvd.Compression.fp16}):
        refused = ended_with(lambda options=options: hvd.allreduce(x, weight=1.0, **options))
        assert isinstance(refused, errors.InvalidArgumentError), refused
    mixed = ended_with(
        lambda: MODES[mode](lambda x: hvd.allreduce(x, weight=None if rank == 0 else 1.0, name="mixed"))(x)
    )
    assert isinstance(hvd.as_ciranda_error(mixed), errors.MismatchError), mixed


def weighted_while_numerics_are_checked(mode: str) -> None:
    """No operation of a valid call makes NaN or infinity, which `enable_check_numerics()` refuses."""
    n, rank = hvd.size(), hvd.rank()
    tf.debugging.enable_check_numerics()
    try:
        found = MODES[mode](lambda x: hvd.allreduce(x, weight=1.0 + rank, name="checked"))(mine(3))
    finally:
        tf.debugging.disable_check_numerics()
    close(found, np.average([np.arange(3) + 10.0 * each for each in range(n)], axis=0, weights=np.arange(n) + 1.0))


def from_one_rank_to_others() -> None:
    """Messages, and what the conformance suite does not ask of reduce, gather and scatter."""
    n, rank = hvd.size(), hvd.rank()
    after, before = (rank + 1) % n, (rank - 1) % n
    handle = hvd.grouped_send_async([mine(3), tf.constant(rank)], after)
    tensor, number = hvd.grouped_recv([tf.zeros(3), tf.constant(0)], before)
    hvd.synchronize(handle)
    close(tensor, np.arange(3) + 10 * before)
    assert tensor.dtype == tf.float32
    assert int(number) == before
    variable = tf.Variable(tf.zeros(2, tf.bfloat16))
    handle = hvd.send_async(tf.cast(mine(2), tf.bfloat16), after, name="variable")
    assert hvd.recv(source=before, tensor=variable, name="variable") is variable
    handle.wait()
    close(tf.cast(variable, tf.float32), np.arange(2) + 10 * before)
    rows = hvd.scatter(tensor=tf.reshape(tf.range(2 * n), [n, 2]), root_rank=1, splits=[0, n] + [0] * (n - 2))
    assert rows.shape == [n if rank == 1 else 0, 2]
    for function in ("reduce", "gather", "scatter"):
        x = mine(3)
        with tf.GradientTape() as tape:
            tape.watch(x)
            result = getattr(hvd, function)(x, root_rank=0)
        if result is not None:
            error = ended_with(lambda tape=tape, result=result, x=x: tape.gradient(result, x))
            assert isinstance(error, errors.NotSupportedError), error
        error = ended_with(
            lambda function=function: tf.function(lambda y: getattr(hvd, function)(y, root_rank=0))(mine(3))
        )
        assert isinstance(error, errors.NotSupportedError), error
        assert "outside of tf.function" in str(error)


# --- names


def names_in_graphs() -> None:
    """Calls of one graph are told apart, and have the same names on all ranks, whatever else a rank's graph has."""

    @tf.function
    def step(x: Any) -> Any:
        if hvd.rank() == 0:
            x = tf.identity(tf.identity(x))  # as a rank that also logs
        with tf.name_scope("scope"):
            c = hvd.allreduce(x * 3, name="a name: of any kind/")
        d = hvd.allreduce(x * 4, name="twice")
        e = hvd.allreduce(x * 5, name="twice")
        _, total = tf.while_loop(
            lambda i, total: i < 4,
            lambda i, total: (i + 1, total + hvd.allreduce(x * tf.cast(i, x.dtype), name="loop")),
            (0, tf.zeros_like(x)),
        )
        return c, d, e, total

    results = step(mine(3))
    for factor, result in zip((3, 4, 5, 6), results, strict=True):
        close(result, factor * average(3))


def many_iterations_at_once() -> None:
    """More than TensorFlow has under way by default, of a body that is traced in the loop, and of a function before."""
    before = tf.function(lambda x: hvd.allreduce(x, name="before"))
    before(mine(2))
    n_iterations = 300

    for body in (lambda x: hvd.allreduce(x, name="inside"), before):

        @tf.function
        def step(x: Any, body: Any = body) -> Any:
            def iterate(i: Any, found: Any) -> Any:
                return i + 1, found.write(i, body(x * tf.cast(i, x.dtype)))

            found = tf.TensorArray(tf.float32, size=n_iterations)
            loop = tf.while_loop(lambda i, _: i < n_iterations, iterate, (0, found), parallel_iterations=200)
            return loop[1].stack()

        close(step(mine(2)), np.arange(n_iterations)[:, None] * average(2))


def calls_of_one_function_twice() -> None:
    @tf.function
    def inner(x: Any) -> Any:
        return hvd.allreduce(x, name="inner")

    @tf.function
    def step(x: Any) -> Any:
        return inner(x), inner(x * 2)

    a, b = step(mine(3))
    close(a, average(3))
    close(b, 2 * average(3))


def names_at_once() -> None:
    long = "x" * 2000
    error = ended_with(lambda: hvd.allreduce(mine(2), name=""))
    assert isinstance(error, errors.InvalidArgumentError), error
    outcome = None
    with contextlib.suppress(tf.errors.InvalidArgumentError):
        outcome = hvd.allreduce(mine(2), name=long)
    if outcome is not None:
        close(outcome, average(2))
    close(hvd.allreduce(mine(2)), average(2))


# --- what is wrong


def bad_calls(mode: str) -> None:
    n = hvd.size()
    x = tf.ones([4, 3])
    gone = hvd.add_process_set([0])
    number = gone.process_set_id

    def of_gone(x: Any) -> Any:
        gone.process_set_id = number
        return hvd.allreduce(x, name="t", process_set=gone)

    removed = MODES[mode](of_gone)
    if hvd.rank() == 0:
        removed(x)
    hvd.remove_process_set(gone)
    attempts: list[tuple[Callable[[Any], Any], str]] = [
        (removed, f"process set {number}"),
        (lambda x: hvd.allreduce(x, name="t", op=77), "could not take in"),
        (lambda x: hvd.allreduce(x, name="t", op=hvd.Sum, prescale_factor=float("nan")), "finite"),
        (lambda x: hvd.broadcast(x, n, name="t"), f"root_rank {n}"),
    ]
    if mode != "xla":
        attempts += [
            (lambda x: hvd.allgather(x[0, 0], name="t"), "scalar"),
            (lambda x: hvd.alltoall(x, splits=tf.constant([5] + [0] * (n - 1)), name="t"), "must add up"),
            (lambda x: hvd.alltoall(x, splits=tf.constant([5, -1] + [0] * (n - 2), tf.int64), name="t"), "-1"),
            (lambda x: hvd.alltoall(x, splits=tf.constant([4] + [0] * n), name="t"), f"{n + 1}"),
            (lambda x: hvd.alltoall(x, splits=tf.constant([[4]]), name="t"), "vector"),
        ]
    for call, text in attempts:
        error = ended_with(lambda call=call: MODES[mode](call)(x))
        found = hvd.as_ciranda_error(error)
        assert isinstance(found, errors.InvalidArgumentError), (error, text)
        assert text in str(found), (str(found), text)
        if mode != "xla":
            assert isinstance(error, tf.errors.InvalidArgumentError), error
    pair = hvd.add_process_set([0, 1])
    outside = ended_with(
        lambda: MODES[mode](lambda x: hvd.broadcast(x, 2, name="t", process_set=pair))(x)
    )  # of which rank 2 is no member either
    found = hvd.as_ciranda_error(outside)
    assert isinstance(found, errors.InvalidArgumentError), outside
    assert ("root_rank 2" if hvd.rank() < 2 else "rank 2") in str(found), str(found)
    before_ops: list[Callable[[Any], Any]] = [
        lambda x: hvd.alltoall(x, splits=tf.constant([4.0] + [0.0] * (n - 1)), name="t"),
        lambda x: hvd.allreduce(x, process_set=gone, name="t"),
        lambda x: hvd.grouped_allreduce([], name="t"),
        lambda x: hvd.allreduce(x, name=7),  # type: ignore[arg-type]
    ]
    gone.process_set_id = None
    for call in before_ops:
        error = ended_with(lambda call=call: MODES[mode](call)(x))
        assert isinstance(error, ValueError), error
    close(MODES[mode](lambda x: hvd.allreduce(x, name="t", op=hvd.Sum))(x), np.full((4, 3), n))
    hvd.remove_process_set(pair)
    for factors in ({"prescale_factor": 0.0}, {"postscale_factor": 0.0}):
        close(MODES[mode](lambda x, how=factors: hvd.allreduce(x, name="t", op=hvd.Sum, **how))(x), np.zeros((4, 3)))


def differing_variables() -> tuple[str, str]:
    """Lists of variables that differ between ranks. Returns what each rank is told."""
    given = [tf.Variable(mine(3)) for _ in range(2 if hvd.rank() == 0 else 3)]
    for has_none in range(hvd.size()):
        mine_or_none = [] if hvd.rank() == has_none else given
        none = ended_with(lambda some=mine_or_none: hvd.broadcast_variables(some, 0))
        assert isinstance(hvd.as_ciranda_error(none), errors.MismatchError), none
    hvd.broadcast_variables([], 0)  # on all ranks: the same everywhere
    error = ended_with(lambda: hvd.broadcast_(given, 0, name="variables"))
    close(hvd.allreduce(mine(2), name="after"), average(2))
    return type(error).__name__, str(hvd.as_ciranda_error(error))


def device_that_is_not_there() -> None:
    """TensorFlow places the op elsewhere, or refuses: the same on all ranks."""
    for device in ("/gpu:7", "/job:other/cpu:0"):
        refusal = "device"
        try:
            close(hvd.allreduce(mine(2), device_dense=device, name="device"), average(2))
        except (tf.errors.InvalidArgumentError, ValueError) as error:
            refusal = str(error).lower()
        assert "device" in refusal
    close(hvd.allreduce(mine(2), name="after"), average(2))


def not_in_a_world(mode: str) -> None:
    function = MODES[mode](lambda x: hvd.allreduce(x, name="t"))
    x = tf.ones([2])
    function(x)
    hvd.shutdown()
    for _ in range(2):
        found = hvd.as_ciranda_error(ended_with(lambda: function(x)))
        assert isinstance(found, errors.InvalidArgumentError), found
        assert "call init() first" in str(found)
    assert isinstance(ended_with(hvd.rank), ValueError)
    hvd.init()
    close(function(x), [1.0, 1.0])


def differing_factors(mode: str) -> str:
    """Return what all ranks are told."""
    factor = 1.5 if hvd.rank() else 2.5
    function = MODES[mode](
        lambda x: hvd.allreduce(x, op=hvd.Sum, name="t", prescale_factor=factor, postscale_factor=3.0)
    )
    error = ended_with(lambda: function(tf.ones([2])))
    found = hvd.as_ciranda_error(error)
    assert isinstance(found, errors.MismatchError), error
    if mode != "xla":
        assert isinstance(error, tf.errors.FailedPreconditionError), error
    return str(found)


def compiled_after_an_error() -> tuple[bool, list[float]]:
    """Return whether a compiled program goes on behind a call that failed, and what it then reads of that call.

    The last rank has no program: its call of NumPy makes the first one fail, and hears in the second what others read.
    """
    last = hvd.size() - 1

    @tf.function(jit_compile=True)
    def program(x: Any) -> Any:
        return hvd.allreduce(hvd.allreduce(x, op=hvd.Sum, name="fails"), op=hvd.Sum, name="follows")

    if hvd.rank() < last:
        found = hvd.as_ciranda_error(ended_with(lambda: program(tf.ones([3]))))
        assert isinstance(found, errors.MismatchError), found
        goes_on = bool(ciranda.broadcast(np.array(0), last, name="goes on"))
        follows = None if goes_on else ciranda.allreduce(np.full(3, np.nan, np.float32), op=hvd.Sum, name="follows")
        return goes_on, [] if follows is None else follows.tolist()
    assert isinstance(ended_with(lambda: ciranda.allreduce(np.ones(4), name="fails")), errors.MismatchError)
    handle = ciranda.allreduce_async(np.zeros(3, np.float32), op=hvd.Sum, name="follows")
    deadline = time.monotonic() + 1
    while not ciranda.poll(handle) and time.monotonic() < deadline:
        time.sleep(0.01)
    goes_on = ciranda.poll(handle)
    ciranda.broadcast(np.array(int(goes_on)), last, name="goes on")
    return goes_on, ciranda.synchronize(handle).tolist()


def half_precision(mode: str) -> None:
    """A product that float16 cannot hold, of which the rest of the factors makes one that it can."""
    x = tf.constant([60000.0, 3.0], tf.float16)
    call = MODES[mode](lambda x: hvd.allreduce(x, op=hvd.Sum, name="half", prescale_factor=4.0, postscale_factor=0.125))
    close(call(x)[1], 3.0 * hvd.size() / 2, 1e-3)
    assert np.isfinite(call(x / 4)[0].numpy())


def not_compiled() -> None:
    function = tf.function(lambda x: hvd.allgather(x, name="t"), jit_compile=True)
    error = ended_with(lambda: function(tf.ones([2])))
    assert isinstance(error, errors.NotSupportedError), error
    assert "allgather cannot be compiled" in str(error)


# --- tf.data's service


def rows_of_service(file: str) -> list[int]:
    """Return the numbers that this rank gets of those that the service of `file` prepares."""
    from horovod.tensorflow.data.compute_service import TfDataServiceConfig, tf_data_service

    config = TfDataServiceConfig.read(file, wait_for_file_creation=True)
    dataset = tf.data.Dataset.range(24).batch(2)
    if config.dispatcher_side == "compute":
        dataset = dataset.send_to_data_service(config, hvd.rank(), hvd.size(), reuse_dataset=True)
        rows = [int(row) for batch in dataset for row in batch]
    else:
        with tf_data_service(config, hvd.rank()) as address:
            service = tf.data.experimental.service.distribute("distributed_epoch", address, job_name="job")
            rows = [int(row) for batch in dataset.apply(service) for row in batch]
    ciranda.barrier()
    if hvd.rank() == 0:
        config.compute_client().shutdown()
    return rows


# --- lives


def many_steps(n_steps: int, which: Sequence[str]) -> int:
    """Return the kilobytes that the process has grown by with steps of these kinds."""
    variable = tf.Variable(tf.zeros([256 * hvd.size()]))

    def train(x: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable * x)
        variable.assign_sub(hvd.DistributedGradientTape(tape).gradient(loss, variable))

    kinds: dict[str, list[Callable[[Any], Any]]] = {
        "tapes": [train, tf.function(train)],
        "calls": [
            tf.function(lambda x: (hvd.allreduce(x), hvd.allgather(x), hvd.alltoall(x))),
            tf.function(hvd.allreduce, jit_compile=True),
            lambda x: (hvd.allreduce(x, name="eager"), hvd.broadcast(x, 0)),
        ],
    }
    steps = [step for kind in which for step in kinds[kind]]
    x = tf.ones([256 * hvd.size()])
    for step in steps:
        for _ in range(100):
            step(x)
    before = _kilobytes()
    for step in steps:
        for _ in range(n_steps):
            step(x)
    wait_until(lambda: _plugin.live_calls() == 0)  # the last of a call happens after TensorFlow has its result
    return _kilobytes() - before


def _kilobytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


def step_until_lost(victim: int, folder: Path) -> dict[str, tuple[str, str]]:
    """Step in each mode, in threads, until that fails. Returns how."""
    found: dict[str, tuple[str, str]] = {}
    steps = {
        mode: compiled(lambda x, mode=mode: tf.add_n([hvd.allreduce(x, name=f"{mode}.{part}") for part in range(10)]))
        for mode, compiled in MODES.items()
    }
    x = tf.ones([1000])
    for step in steps.values():
        step(x)
    (folder / str(hvd.rank())).touch()
    if hvd.rank() == victim:
        return found

    def run(mode: str) -> None:
        try:
            while True:
                steps[mode](x)
        except tf.errors.OpError as error:
            kind = hvd.as_ciranda_error(error)
            found[mode] = (type(kind).__name__, f"{type(error).__name__} {kind}")

    threads = [threading.Thread(target=run, args=(mode,)) for mode in MODES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: _plugin.live_calls() == 0)
    return found
