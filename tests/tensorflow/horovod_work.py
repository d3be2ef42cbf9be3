"""What ranks run with `horovod.tensorflow`: every function, with its arguments by position, in and out of graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tf_work import close, ended_with

import horovod.tensorflow as hvd

MODES: Sequence[Callable[[Any], Any]] = (lambda function: function, tf.function)
DTYPES = (
    *(tf.uint8, tf.int8, tf.uint16, tf.int16, tf.int32, tf.int64),
    *(tf.float16, tf.bfloat16, tf.float32, tf.float64),
)
ALL = hvd.global_process_set


def of_rank(rank: int, n_dims: int) -> Any:
    return np.random.default_rng(rank).integers(0, 4, size=[3] * n_dims)


def reductions() -> None:
    """Of each dtype that Horovod has, and each number of dimensions."""
    everyones = [[of_rank(rank, n_dims) for rank in range(hvd.size())] for n_dims in range(4)]
    wanted = {hvd.Sum: np.sum, hvd.Min: np.min, hvd.Max: np.max, hvd.Product: np.prod}
    for mode in MODES:
        for dtype in DTYPES:

            def step(dtype: Any = dtype) -> list[Any]:
                tensors = [tf.cast(tf.constant(arrays[hvd.rank()]), dtype) for arrays in everyones]
                return [hvd.allreduce(tensor, op=op) for op in wanted for tensor in tensors]

            found = iter(mode(step)())
            for combine in wanted.values():
                for arrays in everyones:
                    close(tf.cast(next(found), tf.float64), combine(arrays, axis=0))


def moves() -> None:
    n, rank = hvd.size(), hvd.rank()
    for mode in MODES:
        for dtype in (*DTYPES, tf.bool):

            def step(dtype: Any = dtype) -> list[Any]:
                own = tf.cast(tf.fill([rank + 1, 2], rank % 2), dtype)
                dealt, counts = hvd.alltoall(tf.cast(tf.fill([n, 2], rank % 2), dtype), tf.ones([n], tf.int32))
                return [hvd.allgather(own), hvd.broadcast(own[:1], n - 1), dealt, counts]

            gathered, sent, dealt, counts = (tf.cast(each, tf.float64) for each in mode(step)())
            parities = np.arange(n) % 2
            close(gathered, np.repeat(np.repeat(parities, np.arange(1, n + 1))[:, None], 2, axis=1))
            close(sent, np.full((1, 2), (n - 1) % 2))
            close(dealt, np.repeat(parities[:, None], 2, axis=1))
            close(counts, np.ones(n))


def arguments_by_position() -> None:
    n, rank = hvd.size(), hvd.rank()
    none, fp16 = hvd.Compression.none, hvd.Compression.fp16
    total = n * (n + 1) / 2
    for mode in MODES:
        own = tf.fill([2 * n], rank + 1.0)
        results = mode(
            lambda own=own: [
                hvd.allreduce(own, None, "", "", none, hvd.Sum, 2.0, 0.5, "allreduce", ALL, True),
                hvd.grouped_allreduce([own], None, "", "", fp16, hvd.Average, 1.0, 3.0, ALL, False, "group")[0],
                hvd.reducescatter(own, "", none, hvd.Sum, "reducescatter", ALL, True, 1.0, 2.0),
                hvd.grouped_reducescatter([own], "", none, hvd.Average, ALL, 2.0, 1.0)[0],
                hvd.allgather(own[:1], "allgather", True, ALL),
                hvd.grouped_allgather([own[:1]], "allgathers", True, ALL)[0],
                hvd.broadcast(own, n - 1, "broadcast", True, ALL),
                hvd.alltoall(own[:n], None, "alltoall", True, ALL),
            ]
        )()
        parts: list[tuple[int, float]] = [(2 * n, total), (2 * n, 3 * total / n), (2, 2 * total), (2, 2 * total / n)]
        for found, (length, value) in zip(results, parts, strict=False):
            close(found, np.full(length, value), 1e-3)
        for found in (*results[4:6], results[7]):
            close(found, np.arange(1, n + 1))
        close(results[6], np.full(2 * n, n))
        places = [hvd.size_op(0, "size"), hvd.rank_op("rank"), hvd.local_rank_op("local"), hvd.local_size_op("sizes")]
        assert [int(place) for place in places] == [n, rank, rank, n]
        assert int(mode(lambda: hvd.process_set_included_op(0, "included"))()) == 1
    variable = tf.Variable([float(rank)])
    assert hvd.broadcast_([variable], 1, "variables", ALL)[0] is variable
    hvd.broadcast_variables([variable], 1, ALL, True)
    close(variable, [1.0])
    assert hvd.broadcast_object([rank], 1, None, "object", ALL) == [1]
    assert hvd.broadcast_object_fn(1, None, "object", ALL)({rank}) == {1}
    assert hvd.allgather_object(rank, None, "objects", ALL) == list(range(n))


def differing_calls() -> None:
    """The classes that scripts for Horovod catch."""
    rank = hvd.rank()
    dtype = (tf.float32, tf.int32)[rank % 2]
    calls: list[Callable[[], Any]] = [
        lambda: hvd.allreduce(tf.ones([2 + rank]), name="shape"),
        lambda: hvd.allreduce(tf.ones([2] * (1 + rank % 2)), name="dimensions"),
        lambda: hvd.allreduce(tf.ones([2], dtype), op=hvd.Sum, name="dtype"),
        lambda: hvd.allreduce(tf.ones([2]), op=(hvd.Sum, hvd.Max)[rank % 2], name="op"),
        lambda: hvd.allreduce(tf.ones([2]), op=hvd.Sum, prescale_factor=1.0 + rank % 2, name="factor"),
        lambda: hvd.grouped_allreduce([tf.ones([2 + rank]), tf.ones([2])], name="group"),
        lambda: hvd.allgather(tf.ones([2, 2 + rank]), name="rows"),
        lambda: hvd.allgather(tf.ones([2], dtype), name="dtype of rows"),
        lambda: hvd.broadcast(tf.ones([2 + rank]), 0, name="shape of root"),
        lambda: hvd.broadcast(tf.ones([2]), rank, name="root"),
        lambda: hvd.alltoall(tf.ones([hvd.size(), 2 + rank]), name="dealt"),
        lambda: hvd.reducescatter(tf.ones([hvd.size() + rank]), name="shape of parts"),
    ]
    wrong: list[Callable[[], Any]] = [
        lambda: hvd.allgather(tf.constant(1.0)),
        lambda: hvd.reducescatter(tf.constant(1.0)),
        lambda: hvd.broadcast(tf.ones([2]), hvd.size()),
        lambda: hvd.alltoall(tf.ones([hvd.size()]), splits=tf.fill([hvd.size()], 2)),
        lambda: hvd.alltoall(tf.ones([hvd.size()]), splits=tf.fill([hvd.size()], 1.0)),
    ]
    for mode in MODES:
        for call in calls:
            error = ended_with(mode(call))
            assert isinstance(error, tf.errors.FailedPreconditionError), error
        for call in wrong:
            error = ended_with(mode(call))
            assert isinstance(error, (tf.errors.InvalidArgumentError, ValueError)), error
    close(hvd.allreduce(tf.ones([2]), op=hvd.Sum, name="shape"), np.full(2, hvd.size()))


def uneven_work() -> None:
    rank, n = hvd.rank(), hvd.size()
    for step in range(rank + 1):
        close(hvd.allreduce(tf.ones([2]), op=hvd.Sum, name=f"uneven.{step}"), np.full(2, n - step))
    assert int(hvd.join()) == n - 1
    if rank > 0:
        assert isinstance(ended_with(lambda: hvd.allgather(tf.ones([1]), name="joined")), tf.errors.OpError)
    hvd.join()


def another_world() -> None:
    """A function that was traced in one world runs in the next."""
    n = hvd.size()
    traced = tf.function(lambda x: (hvd.allreduce(x), hvd.size_op()))
    close(traced(tf.ones([2]))[0], np.ones(2))
    hvd.shutdown()
    for function in (hvd.size, hvd.rank):
        assert isinstance(ended_with(function), ValueError)
    assert isinstance(ended_with(lambda: hvd.allreduce(tf.ones([1]))), tf.errors.InvalidArgumentError)
    hvd.init()
    mean, size = traced(tf.ones([2]))
    close(mean, np.ones(2))
    assert int(size) == n
    hvd.shutdown()
    some = hvd.ProcessSet([0])
    hvd.init(process_sets=[some])
    assert some.included() == (hvd.rank() == 0)
    hvd.shutdown()
    hvd.init()
