"""Combines the gradients of a step, for tapes and optimizers of TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tensorflow as tf

from ciranda._frameworks import unshared
from ciranda._frameworks.gradients import After, GradientCombiner, Groups
from ciranda._frameworks.options import Options
from ciranda._frameworks.parameters import ParameterCheck
from ciranda.errors import NotSupportedError
from ciranda.process_sets import ProcessSet, id_of
from ciranda.tensorflow import comparing, ops, outside
from ciranda.tensorflow._autograph import unconverted
from ciranda.tensorflow.places import size_op


class _Placed:
    """The combiner's operations, on the given devices."""

    def __init__(self, device_dense: str, device_sparse: str, ignore_name_scope: bool) -> None:
        self._where: dict[str, Any] = {
            "device_dense": device_dense,
            "device_sparse": device_sparse,
            "ignore_name_scope": ignore_name_scope,
        }

    def allreduce(self, tensor: Any, **how: Any) -> Any:
        return ops.allreduce(tensor, **self._where, **how)

    def grouped_allreduce(self, tensors: Sequence[Any], **how: Any) -> list[Any]:
        _require_one_replica()
        return ops.grouped_allreduce(tensors, **self._where, **how)


def _require_one_replica() -> None:
    """Raise NotSupportedError if a strategy of `tf.distribute` has several replicas."""
    n_replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if n_replicas > 1:
        raise NotSupportedError(
            f"gradients are combined over the ranks, which cannot be combined with the {n_replicas} replicas of "
            "tf.distribute's strategy, too: leave the strategy out, or give it one device"
        )


def densified(gradient: Any) -> Any:
    """Return IndexedSlices as a tensor, and others as they are."""
    return tf.convert_to_tensor(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient


def _prepared(sparse_as_dense: bool, gradient: Any, variable: Any) -> Any:
    """Return the gradient to combine, dense with the static shape of its variable, or sparse."""
    if isinstance(gradient, tf.IndexedSlices):
        return densified(gradient) if sparse_as_dense else gradient
    gradient.set_shape(variable.shape)
    return gradient


def _divided(process_set: ProcessSet, gradient: Any) -> Any:
    """Return the gradient divided by the number of ranks at run time."""
    size = tf.cast(size_op(id_of(process_set)), gradient.dtype)
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values / size, gradient.indices, gradient.dense_shape)
    return gradient / size


def after(call: Callable[[Any], Any], gradient: Any) -> Any:
    """Return the gradient, which in a graph depends on a call: the call would be pruned otherwise."""
    with tf.control_dependencies(call(tf.constant(False))):
        return tf.identity(gradient)


class _Combiner(GradientCombiner):
    """Combines the gradients of TensorFlow; before this process's first world, it leaves them as they are."""

    @unconverted
    def combined(
        self, gradients: Sequence[Any], variables: Sequence[Any], scale: float = 1.0, has_stepped: bool = False
    ) -> list[Any]:
        """As in the base class."""
        combine = partial(super().combined, gradients, variables, scale, has_stepped)
        if not self._may_step_alone():
            return combine()
        unshared.note(variables)
        pairs = zip(gradients, variables, strict=True)
        own = [None if gradient is None else self._prepared(gradient, variable) for gradient, variable in pairs]
        return outside.combined_once_joined(own, combine)

    @unconverted
    def least(self, flag: Any) -> Any:
        """As in the base class."""
        find = super().least
        if not self._may_step_alone():
            return find(flag)
        (chosen,) = outside.combined_once_joined([flag], lambda: [find(flag)])
        return chosen

    def _may_step_alone(self) -> bool:
        """Whether the step is one before the first world, which leaves nothing behind but what a state shares."""
        has_sums = self._options.passes > 1
        return unshared.is_outside() and not has_sums and tf.compat.v1.executing_eagerly_outside_functions()


def make_combiner(
    name: str | None,
    options: Options,
    groups: Groups,
    device_dense: str = "",
    device_sparse: str = "",
    ignore_name_scope: bool = True,
    after: After | None = None,
    check: ParameterCheck | None = None,
) -> GradientCombiner:
    """Return a combiner of TensorFlow's gradients; see GradientCombiner."""
    operations = _Placed(device_dense, device_sparse, ignore_name_scope)
    divided = partial(_divided, options.process_set)
    prepared = partial(_prepared, options.sparse_as_dense)
    return _Combiner(lambda: operations, name, options, groups, divided, prepared, after, check, comparing.compare)
