"""Gradients of Keras 2 that are not finite on some ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from ciranda._frameworks.gradients import GradientCombiner

Pairs = list[tuple[Any, Any]]


def _values(gradient: Any) -> Any:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def times(gradient: Any, factor: Any) -> Any:
    """Return a gradient multiplied by a factor; None stays None."""
    if gradient is None:
        return None
    values = _values(gradient)
    product = values * tf.cast(factor, values.dtype)
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(product, gradient.indices, gradient.dense_shape)
    return product


def are_finite_everywhere(combiner: GradientCombiner, gradients: Iterable[Any]) -> Any:
    """Return whether the gradients of all ranks are finite. A collective."""
    present = [_values(gradient) for gradient in gradients if gradient is not None]
    mine = tf.reduce_all([True, *(tf.reduce_all(tf.math.is_finite(values)) for values in present)])
    return combiner.least(tf.cast(mine, tf.float32)) > 0


def with_overflow_of_all(combiner: GradientCombiner, pairs: Pairs, is_own: Callable[[Any], bool]) -> Pairs:
    """Return the gradients, or non-finite ones if any rank's local gradients are not finite.

    Combined gradients are the same on all ranks anyway.
    """
    own = [gradient for gradient, variable in pairs if is_own(variable)]
    if not own:
        return pairs
    # 1 / 0 is infinite only for an overflow; a graph's constant infinity is refused by TensorFlow's checks of numerics.
    factor = 1.0 / tf.cast(are_finite_everywhere(combiner, own), tf.float32)
    return [(times(gradient, factor), variable) for gradient, variable in pairs]
