"""Batch normalization over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ciranda._ops import Sum
from ciranda.errors import InvalidArgumentError
from ciranda.tensorflow import ops


def _moments_of_all(mean: Any, variance: Any, count: Any) -> tuple[Any, Any]:
    """Return the mean and the variance over all ranks, of which this one has `count` values with these moments.

    Adds the ranks' variances and the variance between their means, which loses no digits if means are large, unlike a
    difference of squares. Gradients go through both calls.
    """
    weight = tf.fill(tf.shape(mean), tf.cast(count, mean.dtype))
    total, n_all = ops.grouped_allreduce([mean * weight, weight], op=Sum, name="sync_batch_norm_mean")
    whole = total / n_all
    spread = (variance + tf.math.squared_difference(mean, whole)) * weight
    return whole, ops.allreduce(spread, op=Sum, name="sync_batch_norm_variance") / n_all


def _count(inputs: Any, axes: Any, mask: Any, dtype: Any) -> Any:
    """Return the number of values of each channel."""
    shape = tf.shape(inputs)
    if mask is None:
        return tf.cast(tf.reduce_prod(tf.gather(shape, list(axes))), dtype)
    whole = tf.cast(tf.reduce_prod(tf.gather(shape, list(axes))), dtype)
    masked = tf.cast(tf.reduce_prod(tf.shape(mask)), dtype)
    return whole / masked * tf.reduce_sum(tf.cast(mask, dtype))


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):  # type: ignore[misc]
    """Batch normalization whose statistics, in training, are those of the joined batches of all ranks.

    It equals `BatchNormalization` on the whole batch, forward and backward, also where ranks' batches differ in size.

    Args:
        fused: False; the fused kernels do not communicate.
        kwargs: as for `tf.keras.layers.BatchNormalization`.

    Raises:
        InvalidArgumentError: (a ValueError) for any other `fused`.
    """

    def __init__(self, fused: bool = False, **kwargs: Any) -> None:
        if fused is not False:
            raise InvalidArgumentError("SyncBatchNormalization needs fused=False: fused kernels do not communicate")
        if _IS_KERAS_3:
            super().__init__(**kwargs)
        else:
            super().__init__(fused=False, **kwargs)

    def _moments(self, inputs: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Return the mean and the variance over all ranks. Keras 2 passes the axes; Keras 3 only a mask."""
        own = super()._moments(inputs, *args, **kwargs)
        mean, variance = (tf.convert_to_tensor(moment) for moment in own)
        mask = kwargs.get("mask", args[0] if _IS_KERAS_3 and args else None)
        axes = self._reduction_axes if _IS_KERAS_3 else args[0]
        return _moments_of_all(mean, variance, _count(inputs, axes, mask, mean.dtype))


_IS_KERAS_3 = not hasattr(tf.keras.layers.BatchNormalization, "_calculate_mean_and_var")
