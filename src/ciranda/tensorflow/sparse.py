"""Reductions of `tf.IndexedSlices`: all ranks' rows, which TensorFlow adds where they are used."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ciranda._frameworks.compression import Compressor
from ciranda._ops import Average, Sum, divides_by_all
from ciranda.errors import InvalidArgumentError
from ciranda.process_sets import id_of
from ciranda.tensorflow._execution import Call, run
from ciranda.tensorflow.places import size_op


def allreduce(slices: Any, call: Call, compression: type[Compressor]) -> Any:
    """Return the IndexedSlices of all ranks; an average is divided at run time, as by `allreduce()`."""
    if call.op not in (Average, Sum):
        raise InvalidArgumentError(f"IndexedSlices can be combined with Average and Sum only, not with op={call.op}")
    by_all = divides_by_all(call.divisor, call.op)
    values, context = compression.compress(tf.convert_to_tensor(slices.values))
    # The engine only gathers, and cannot compare the parameters of the reduction.
    mine = tf.constant([[call.op, by_all, call.prescale, call.postscale]], tf.float64)
    gather = Call(call.name, process_set=call.process_set, ignore_name_scope=call.ignore_name_scope)
    given = [values, tf.convert_to_tensor(slices.indices), mine]
    values, indices, everyones = run("CirandaAllgather", given, gather)
    with tf.control_dependencies([_alike(everyones, mine, call.name)]):
        values = compression.decompress(tf.identity(values), context)
    factor = call.prescale * call.postscale
    if factor != 1.0:
        values *= tf.cast(factor, values.dtype)
    if call.op == Average:
        n_ranks = tf.cast(size_op(id_of(call.process_set)) if by_all else tf.shape(everyones)[0], values.dtype)
        values = values // n_ranks if values.dtype.is_integer else values / n_ranks
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


def _alike(everyones: Any, mine: Any, name: str | None) -> Any:
    """Return an operation that fails on all ranks unless their parameters are equal."""
    what = f"IndexedSlices {name}" if name else "IndexedSlices"  # TensorFlow would escape quotes
    differences = "op, divisor, prescale_factor or postscale_factor, of which each is a row"
    text = f"Mismatch: ciranda.tensorflow: allreduce of {what}: ranks differ in {differences}"
    is_alike = tf.reduce_all(tf.equal(everyones, everyones[:1]))
    return tf.debugging.Assert(is_alike, [text, everyones], summarize=64) or is_alike
