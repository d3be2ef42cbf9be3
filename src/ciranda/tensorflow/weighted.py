"""Weighted averages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ciranda._ops import Average, Sum
from ciranda.errors import InvalidArgumentError
from ciranda.tensorflow._execution import Call, run

Tensor = Any


def allreduce(tensors: Sequence[Tensor], weight: Any, call: Call) -> list[Tensor]:
    """Return, of each tensor, the sum of weight * tensor over the sum of the weights.

    The weight is known only at run time, so it is sent as a tensor, with the others in one request.
    """
    if call.op != Average or call.divisor == "world":
        raise InvalidArgumentError('weights are for op=Average only, and not with divisor="world"')
    if not all(tensor.dtype.is_floating or tensor.dtype.is_complex for tensor in tensors):
        raise InvalidArgumentError("weights are for floating-point and complex tensors only")
    mine = tf.cast(tf.reshape(tf.convert_to_tensor(weight), []), tf.float64)
    is_right = tf.logical_and(tf.math.is_finite(mine), mine >= 0)
    told = tf.stack([tf.where(is_right, mine, 0.0), tf.cast(tf.logical_not(is_right), tf.float64)])
    scaled = [tensor * tf.cast(mine * call.prescale, tensor.dtype) for tensor in map(_wide, tensors)]
    *sums, of_all = run("CirandaAllreduce", [*scaled, told], call._replace(op=Sum, prescale=1.0, postscale=1.0))
    factor = _factor(of_all[0], of_all[1], call)
    results = [each * tf.cast(factor, each.dtype) for each in sums]
    return [tf.cast(each, tensor.dtype) for each, tensor in zip(results, tensors, strict=True)]


def _wide(tensor: Tensor) -> Tensor:
    """Return a tensor that can be multiplied by the size of a batch."""
    return tf.cast(tensor, tf.float32) if tensor.dtype.size == 2 else tensor


def _factor(total: Tensor, n_wrong: Tensor, call: Call) -> Tensor:
    """Return the factor of the sums. Fails on all ranks if a weight is invalid; a compiled function gets NaN."""
    is_right = tf.logical_and(n_wrong == 0, total > 0)
    what = f"allreduce of {call.name}" if call.name else "allreduce"  # TensorFlow would escape quotes
    text = f"InvalidArgument: ciranda.tensorflow: {what}: weights must be finite, 0 or more, and not 0 on all ranks"
    check = tf.debugging.Assert(is_right, [text])
    with tf.control_dependencies([] if check is None else [check]):
        # 0 / 0 is NaN only for invalid weights; `tf.debugging.enable_check_numerics()` refuses a graph's constant NaN.
        return tf.cast(is_right, total.dtype) * call.postscale / tf.where(is_right, total, 0.0)
