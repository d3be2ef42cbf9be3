"""DistributedOptimizer of Keras 2 and its legacy optimizers, on TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ciranda._frameworks.gradients import GradientCombiner
from ciranda._frameworks.options import Options
from ciranda.errors import NotSupportedError
from ciranda.keras.overflow import are_finite_everywhere, times, with_overflow_of_all
from ciranda.tensorflow.accumulating import Accumulator

Pairs = list[tuple[Any, Any]]


class Keras2Combining:
    """The common part of both ways to add combining to an optimizer's class."""

    _make_combiner: Callable[[], GradientCombiner]
    _distribution: Options
    #: The LossScaleOptimizers that call this optimizer while it computes or applies gradients.
    _computing_scaler: Any = None
    _applying_scaler: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._begin()

    def _begin(self) -> None:
        combiner = type(self)._make_combiner()
        asked = self._distribution
        accumulator = Accumulator(combiner, asked.passes, asked.averages_passes, asked.sparse_as_dense)
        object.__setattr__(self, "_combiner", combiner)
        object.__setattr__(self, "_accumulator", accumulator if asked.passes > 1 else None)

    def register_local_var(self, var: Any) -> None:
        """Leave the gradient of `var` to each rank: it is not combined."""
        self._combiner.keep_local(var)  # type: ignore[attr-defined]

    def _allreduce(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:
        """Combine gradients; or, if several passes accumulate, add them to the previous ones."""
        accumulator: Accumulator | None = self._accumulator  # type: ignore[attr-defined]
        if accumulator is not None:
            return self._added(accumulator, list(grads), list(vars))
        return self._combiner.combined(list(grads), list(vars))  # type: ignore[attr-defined,no-any-return]

    def _added(self, accumulator: Accumulator, grads: list[Any], vars: list[Any]) -> list[Any]:
        """Add gradients, without their scale: the scale of the next pass may differ."""
        if self._computing_scaler is None:
            return accumulator.added(grads, vars)
        scale = self._computing_scaler.loss_scale
        sums = accumulator.added([times(gradient, 1.0 / scale) for gradient in grads], vars)
        return [times(gradient, scale) for gradient in sums]

    def _combined_pairs(self, grads_and_vars: Any) -> Pairs:
        pairs = list(grads_and_vars)
        variables = [variable for _, variable in pairs]
        return list(zip(self._allreduce([gradient for gradient, _ in pairs], variables), variables, strict=True))

    def _with_overflow_of_all(self, pairs: Pairs) -> Pairs:
        """Return the gradients, or non-finite ones if any rank's local gradients are not finite."""
        combiner: GradientCombiner = self._combiner  # type: ignore[attr-defined]
        keeps_all = self._accumulator is not None  # type: ignore[attr-defined]
        return with_overflow_of_all(combiner, pairs, lambda variable: keeps_all or combiner.is_local(variable))

    def _applied(self, pairs: Pairs, apply: Callable[[], Any]) -> Any:
        """Make the step of `apply`; or, while passes accumulate, only count it."""
        accumulator: Accumulator | None = self._accumulator  # type: ignore[attr-defined]
        if accumulator is None:
            return apply()
        iterations = self.iterations  # type: ignore[attr-defined]
        self._make_variables([variable for _, variable in pairs])

        def make_step() -> Any:
            apply()
            return tf.convert_to_tensor(iterations)

        def count() -> Any:
            return tf.convert_to_tensor(iterations.assign_add(1))

        n_steps = accumulator.when_complete(make_step, count, [gradient for gradient, _ in pairs])
        # In a graph, the LossScaleOptimizer around a legacy optimizer needs an operation, as its own branch returns.
        return tf.group(n_steps) if getattr(self, "_is_wrapped_by_loss_scale_optimizer", False) else n_steps

    def _make_variables(self, variables: list[Any]) -> None:
        """Create the optimizer's variables, which must not be created within a branch of a graph."""
        with tf.init_scope():
            if hasattr(self, "build"):
                self.build(variables)
            else:
                self._create_all_weights(variables)  # type: ignore[attr-defined]


class AtApply(Keras2Combining):
    """Combines the gradients that are applied, whatever their source."""

    def aggregate_gradients(self, grads_and_vars: Any) -> Pairs:
        """Return the gradients of all ranks."""
        pairs = list(grads_and_vars)
        return pairs if self._accumulator is not None else self._combined_pairs(pairs)  # type: ignore[attr-defined]

    def _aggregate_gradients(self, grads_and_vars: Any) -> Pairs:
        return self.aggregate_gradients(grads_and_vars)

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """Combine the gradients and use them, or accumulate them; see the wrapped class."""
        pairs = list(grads_and_vars)
        step = super().apply_gradients  # type: ignore[misc]
        if self._accumulator is None:  # type: ignore[attr-defined]
            return step(pairs, *args, **kwargs)
        pairs = self._combined_pairs(pairs)
        return self._applied(pairs, lambda: self._unless_overflow(pairs, lambda: step(pairs, *args, **kwargs)))

    def _unless_overflow(self, pairs: Pairs, step: Callable[[], Any]) -> Any:
        """Make the step, unless gradients that were finite in each pass are not finite once combined."""
        scaler = self._applying_scaler
        if scaler is None:
            return step()
        iterations = self.iterations  # type: ignore[attr-defined]

        def skip() -> Any:
            update = scaler._loss_scale.update([tf.constant(float("inf"))])
            with tf.control_dependencies([one for one in tf.nest.flatten(update) if tf.is_tensor(one)]):
                return tf.convert_to_tensor(iterations.assign_add(1))

        def make() -> Any:
            with tf.control_dependencies([done] if isinstance(done := step(), tf.Operation) else []):
                return tf.convert_to_tensor(iterations)

        combiner: GradientCombiner = self._combiner  # type: ignore[attr-defined]
        return tf.cond(are_finite_everywhere(combiner, [gradient for gradient, _ in pairs]), make, skip)


class AtCompute(Keras2Combining):
    """Combines the gradients that the optimizer computes; other applied gradients are unchanged.

    As in Horovod, whose scripts combine gradients with a tape, or call `_allreduce()`, before they apply them.
    """

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> Pairs:
        """Return the gradients of all ranks."""
        if not hasattr(super(), "compute_gradients"):
            return self._compute_gradients(loss, var_list, tape=tape)
        return self._combined_pairs(super().compute_gradients(loss, var_list, tape=tape))  # type: ignore[misc]

    def _compute_gradients(self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None) -> Pairs:
        """The method of legacy optimizers, for all, as scripts for Horovod call it."""
        if hasattr(super(), "_compute_gradients"):
            return self._combined_pairs(super()._compute_gradients(loss, var_list, grad_loss, tape=tape))  # type: ignore[misc]
        if grad_loss is not None:
            raise NotSupportedError("only legacy optimizers take grad_loss: multiply the loss by it instead")
        return self.compute_gradients(loss, var_list, tape)

    def get_gradients(self, loss: Any, params: Any) -> list[Any]:
        """Return the gradients of all ranks, of a graph."""
        return self._allreduce(super().get_gradients(loss, params), params)  # type: ignore[misc]

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """Use the gradients, unless passes are still accumulating; see the wrapped class."""
        pairs = list(grads_and_vars)
        step = super().apply_gradients  # type: ignore[misc]
        return self._applied(pairs, lambda: step(pairs, *args, **kwargs))
