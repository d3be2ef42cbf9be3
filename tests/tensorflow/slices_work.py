"""What ranks run with IndexedSlices of integers: their result is that of the same integers as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tf_work import MODES, close, ended_with

import ciranda.tensorflow as hvd
from ciranda import errors

N_ROWS = 6
TYPES = (tf.uint8, tf.int8, tf.uint16, tf.int16, tf.uint32, tf.int32, tf.uint64, tf.int64)
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"op": hvd.Sum},
    {"compression": hvd.Compression.fp16},
    {"postscale_factor": 0.5},
    {"prescale_factor": 0.5, "postscale_factor": 3.0},
    {"op": hvd.Sum, "prescale_factor": 0.75},
    {"op": hvd.Sum, "postscale_factor": 1000.0},
)


def of(rows: Any, indices: Any, dtype: Any) -> Any:
    """Return rows of two equal elements as IndexedSlices of [N_ROWS, 2]."""
    values = np.repeat(np.array(rows, dtype.as_numpy_dtype)[:, np.newaxis], 2, axis=1)
    return tf.IndexedSlices(tf.constant(values), tf.constant(indices, tf.int64), dense_shape=tf.constant([N_ROWS, 2]))


def equal(found: Any, wanted: Any) -> None:
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found.numpy(), wanted.numpy())


def integers(mode: str) -> None:
    """Of every type and kind of call. Rows 0 and 5 are all ranks', 1 and 2 some ranks', 3 and 4 nobody's."""
    rank = hvd.rank()
    indices = [5, 0, *range(1, rank + 1)]

    @MODES[mode]
    def step(given: Any, whole: Any) -> Any:
        kind = given.dtype.name
        pairs = []
        for number, how in enumerate(OPTIONS):
            found = hvd.allreduce(given, name=f"{kind}.{number}", **how)
            pairs.append((tf.convert_to_tensor(found), hvd.allreduce(whole, name=f"{kind}.{number}.whole", **how)))
        return pairs

    for dtype in TYPES if mode == "eager" else TYPES[1::6]:
        most = int(dtype.max) // 2
        values = np.random.default_rng(rank).integers(max(-most, dtype.min), most, len(indices))
        given = of(values, indices, dtype)
        whole = tf.scatter_nd(given.indices[:, tf.newaxis], given.values, tf.constant([N_ROWS, 2], tf.int64))
        for found, wanted in step(given, whole):
            equal(found, wanted)


def integers_that_repeat() -> None:
    """Rows of one index of one rank are added before anything is rounded, also where their type has no such number."""
    is_first, n = hvd.rank() == 0, hvd.size()
    mine = of([200, 100, 1, 1], [4, 4, 2, 2], tf.uint8) if is_first else of([1], [2], tf.uint8)
    close(tf.convert_to_tensor(hvd.allreduce(mine))[:, 0], [0, 0, (2 + n - 1) // n, 0, 300 // n, 0])
    negative = hvd.allreduce(of([-3, -4] if is_first else [], [1, 1] if is_first else [], tf.int8), name="negative")
    close(tf.convert_to_tensor(negative)[:, 0], [0, -(7 // n), 0, 0, 0, 0])
    beyond = hvd.allreduce(of([127] * 2, [0] * 2, tf.int8), name="beyond")
    close(tf.convert_to_tensor(beyond)[0], [127, 127])
    nobody = hvd.allreduce(of([], [], tf.int32), name="nobody")
    assert nobody.values.shape == [0, 2]


def integers_of_some() -> None:
    """In a group beside a tensor, among some ranks, and while one has joined."""
    rank, n = hvd.rank(), hvd.size()
    some = hvd.add_process_set(range(1, n))
    if rank > 0:
        both = [of([rank], [0], tf.int32), tf.constant([rank])]
        found, tensor = hvd.grouped_allreduce(both, process_set=some, name="some")
        close(tf.convert_to_tensor(found)[0], [sum(range(1, n)) // (n - 1)] * 2)
        close(tensor, [sum(range(1, n)) // (n - 1)])
    hvd.remove_process_set(some)
    if rank > 0:
        for divisor, number in (("contributors", n - 1), ("world", n)):
            found = hvd.allreduce(of([6], [3], tf.int64), divisor=divisor, name=divisor)
            close(tf.convert_to_tensor(found)[3], [6 * (n - 1) // number] * 2)
    hvd.join()


def ops_without_slices() -> None:
    """What cannot be computed row by row is refused in the class that scripts for Horovod catch."""
    given = of([1], [0], tf.int32)
    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
        for call in (lambda op=op: hvd.allreduce(given, op=op), lambda op=op: hvd.grouped_allreduce([given], op=op)):
            error = ended_with(call)
            assert isinstance(error, NotImplementedError), error
            assert isinstance(error, errors.NotSupportedError), error
            assert "IndexedSlices" in str(error)
