"""Gradients of several backward passes, added up on each rank before they are combined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tensorflow as tf

from ciranda._frameworks.gradients import GradientCombiner
from ciranda.errors import InvalidArgumentError
from ciranda.tensorflow.combining import densified


class Accumulator:
    """Accumulates gradients, and combines the sums with those of the other ranks after every `passes` passes.

    Args:
        combiner: combines the sums.
        passes: the number of passes.
        averages: whether the sums are divided by that number.
        sparse_as_dense: whether IndexedSlices are made dense; else they are refused.
    """

    def __init__(self, combiner: GradientCombiner, passes: int, averages: bool, sparse_as_dense: bool) -> None:
        self._combiner = combiner
        self._passes = passes
        self._scale = 1.0 / passes if averages else 1.0
        self._sparse_as_dense = sparse_as_dense
        self._sums: dict[int, Any] = {}
        self._n_passes: Any = None

    def _variable(self, value: Callable[[], Any], name: str) -> Any:
        if tf.compat.v1.executing_eagerly_outside_functions():
            with tf.init_scope():
                return tf.Variable(value(), trainable=False)
        local = [tf.compat.v1.GraphKeys.LOCAL_VARIABLES]
        return tf.compat.v1.Variable(value(), trainable=False, collections=local, name=name)

    def _prepare(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        if self._n_passes is None:
            self._n_passes = self._variable(lambda: tf.constant(0), "n_passes")
        for index, gradient in enumerate(gradients):
            if gradient is not None and index not in self._sums:
                zeros = partial(tf.zeros, variables[index].shape, gradient.dtype)
                self._sums[index] = self._variable(zeros, "sum")

    def _dense(self, gradient: Any) -> Any:
        if isinstance(gradient, tf.IndexedSlices) and not self._sparse_as_dense:
            raise InvalidArgumentError(
                "IndexedSlices cannot be accumulated as they are: give sparse_as_dense=True with "
                "backward_passes_per_step"
            )
        return densified(gradient)

    def added(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Add gradients; return the sums: this rank's, or in the last of `passes` passes those of all ranks."""
        gradients = [self._dense(gradient) for gradient in gradients]
        self._prepare(gradients, variables)
        present = [index for index, gradient in enumerate(gradients) if gradient is not None]
        adding = [self._sums[index].assign_add(gradients[index]) for index in present]
        with tf.control_dependencies(adding):
            count = self._n_passes.assign_add(1)
        with tf.control_dependencies([count]):
            sums = [tf.convert_to_tensor(self._sums[index].read_value()) for index in present]
        with tf.control_dependencies(sums):
            results = tf.cond(
                tf.equal(count, self._passes),
                lambda: self._combined(sums, [variables[index] for index in present]),
                lambda: [tf.identity(own) for own in sums],
            )
        found = dict(zip(present, results if isinstance(results, (list, tuple)) else [results], strict=True))
        return [found.get(index) for index in range(len(gradients))]

    def _combined(self, sums: list[Any], variables: list[Any]) -> list[Any]:
        combined = self._combiner.combined(sums, variables, self._scale)
        with tf.control_dependencies(combined):
            resets = [own.assign(tf.zeros_like(own)) for own in self._sums.values()]
            resets.append(self._n_passes.assign(0))
        with tf.control_dependencies(resets):
            return [tf.identity(one) for one in combined]

    def when_complete(self, action: Callable[[], Any], otherwise: Callable[[], Any], after: Sequence[Any] = ()) -> Any:
        """Return the result of `action` if no sums are pending, else that of `otherwise`."""
        if self._n_passes is None:
            return action()
        with tf.control_dependencies([one for one in after if one is not None]):
            is_complete = tf.equal(self._n_passes.read_value(), 0)
        return tf.cond(is_complete, action, otherwise)
