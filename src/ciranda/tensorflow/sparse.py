"""Reductions of `tf.IndexedSlices`: all ranks' rows, which are added up wherever they are used."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ciranda._frameworks.compression import Compressor
from ciranda._ops import Average, Sum
from ciranda.errors import InvalidArgumentError
from ciranda.process_sets import id_of
from ciranda.tensorflow._execution import Call, run
from ciranda.tensorflow.places import size_op


def allreduce(slices: Any, call: Call, compression: type[Compressor]) -> Any:
    """Return the IndexedSlices of all ranks: an average divides them by the number of ranks when it runs."""
    if call.op not in (Average, Sum):
        raise InvalidArgumentError(f"IndexedSlices can be combined with Average and Sum only, not with op={call.op}")
    values, context = compression.compress(tf.convert_to_tensor(slices.values))
    gather = Call(call.name, process_set=call.process_set, ignore_name_scope=call.ignore_name_scope)
    values, indices = run("CirandaAllgather", [values, tf.convert_to_tensor(slices.indices)], gather)
    values = compression.decompress(values, context)
    factor = call.prescale * call.postscale
    if factor != 1.0:
        values *= tf.cast(factor, values.dtype)
    if call.op == Average:
        size = tf.cast(size_op(id_of(call.process_set)), values.dtype)
        values = values // size if values.dtype.is_integer else values / size
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)
