"""Reductions of `tf.IndexedSlices`: all ranks' rows, which TensorFlow adds where they are used.

Rows of integers are added here, once for each index, where the sum is divided or scaled: the quotients of single rows
do not add up to that of their sum.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ciranda._frameworks.compression import Compressor
from ciranda._ops import Average, Sum, divides_by_all
from ciranda.errors import NotSupportedError
from ciranda.process_sets import id_of
from ciranda.tensorflow._execution import Call, run
from ciranda.tensorflow.places import size_op


def allreduce(slices: Any, call: Call, compression: type[Compressor]) -> Any:
    """Return the IndexedSlices of all ranks; an average is divided at run time, as by `allreduce()`.

    Raises:
        NotSupportedError: an op other than Average and Sum.
    """
    if call.op not in (Average, Sum):
        raise NotSupportedError(
            f"IndexedSlices can be combined with Average and Sum only, not with op={call.op}: use "
            "tf.convert_to_tensor() on them (or sparse_as_dense=True) for others"
        )
    by_all = divides_by_all(call.divisor, call.op)
    values, context = compression.compress(tf.convert_to_tensor(slices.values))
    # The engine only gathers, and cannot compare the parameters of the reduction.
    mine = tf.constant([[call.op, by_all, call.prescale, call.postscale]], tf.float64)
    gather = Call(call.name, process_set=call.process_set, ignore_name_scope=call.ignore_name_scope)
    given = [values, tf.convert_to_tensor(slices.indices), mine]
    values, indices, everyones = run("CirandaAllgather", given, gather)
    with tf.control_dependencies([_alike(everyones, mine, call.name)]):
        values, indices = compression.decompress(tf.identity(values), context), tf.identity(indices)
    factor = call.prescale * call.postscale
    if values.dtype.is_integer and (call.op == Average or factor != 1.0):
        indices = tf.sort(tf.unique(indices).y)
        values = _totals_of_integers(slices, indices, call)
        return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)
    if factor != 1.0:
        values *= tf.cast(factor, values.dtype)
    if call.op == Average:
        values /= tf.cast(size_op(id_of(call.process_set)) if by_all else tf.shape(everyones)[0], values.dtype)
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


def _totals_of_integers(slices: Any, indices: Any, call: Call) -> Any:
    """Return the reduction of all ranks' rows of each of `indices`, rounded and saturated as that of a tensor is.

    A rank's input is the sum of its rows of an index, which has 64 bits where it is averaged without a prescale factor.
    """
    dtype = slices.values.dtype
    is_exact = call.op == Average and call.prescale == 1.0
    wide = tf.uint64 if dtype == tf.uint64 else tf.int64
    own = tf.cast(slices.values, wide if is_exact else dtype)
    places = tf.unique(tf.concat([indices, slices.indices], 0)).idx[tf.size(indices) :]
    rows = tf.math.unsorted_segment_sum(own, places, tf.size(indices))
    name = None if call.name is None else f"{call.name}.totals"
    (totals,) = run("CirandaAllreduce", [rows], call._replace(name=name))
    return totals if totals.dtype == dtype else tf.saturate_cast(totals, dtype)


def _alike(everyones: Any, mine: Any, name: str | None) -> Any:
    """Return an operation that fails on all ranks unless their parameters are equal."""
    what = f"IndexedSlices {name}" if name else "IndexedSlices"  # TensorFlow would escape quotes
    differences = "op, divisor, prescale_factor or postscale_factor, of which each is a row"
    text = f"Mismatch: ciranda.tensorflow: allreduce of {what}: ranks differ in {differences}"
    is_alike = tf.reduce_all(tf.equal(everyones, everyones[:1]))
    return tf.debugging.Assert(is_alike, [text, everyones], summarize=64) or is_alike
