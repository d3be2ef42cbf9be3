"""DistributedOptimizer: of Keras, or of TensorFlow 1 (`tf.compat.v1.train.Optimizer`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import tensorflow as tf

from ciranda._frameworks.compression import Compressor, NoneCompressor
from ciranda._frameworks.gradients import GradientCombiner, Groups, check_groups
from ciranda._frameworks.naming import next_number
from ciranda._frameworks.options import PREFIX, Options, check_factor, positive
from ciranda._ops import Adasum, Average, Divisor, choose_op, divides_by_all
from ciranda.errors import InvalidArgumentError
from ciranda.process_sets import ProcessSet, global_process_set, id_of
from ciranda.tensorflow.accumulating import Accumulator
from ciranda.tensorflow.combining import after, make_combiner
from ciranda.tensorflow.comparing import make_check

Pairs = list[tuple[Any, Any]]


class _Wrapping(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """Wraps an optimizer of TensorFlow 1, and delegates to it everything except the gradients."""

    def __init__(self, optimizer: Any, name: str, use_locking: bool, combiner: GradientCombiner) -> None:
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer
        self._combiner = combiner

    def register_local_var(self, var: Any) -> None:
        """Keep the gradient of `var` local: it is not combined."""
        self._combiner.keep_local(var)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Pairs:
        """Return the result of the wrapped optimizer's method."""
        pairs: Pairs = self._optimizer.compute_gradients(*args, **kwargs)
        return pairs

    def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Make the wrapped optimizer's step."""
        return self._optimizer.apply_gradients(*args, **kwargs)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """Return the wrapped optimizer's slot."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """Return the names of the wrapped optimizer's slots."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """Return the wrapped optimizer's variables."""
        return self._optimizer.variables(*args, **kwargs)


class _Combining(_Wrapping):
    """Combines the gradients that it computes, in every pass or after several accumulated passes."""

    def __init__(self, *args: Any, accumulator: Accumulator | None) -> None:
        super().__init__(*args)
        self._accumulator = accumulator

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Pairs:
        """Return the gradients of all ranks."""
        pairs = super().compute_gradients(*args, **kwargs)
        variables = [variable for _, variable in pairs]
        return list(zip(self._allreduce([gradient for gradient, _ in pairs], variables), variables, strict=True))

    def _allreduce(self, grads: list[Any], vars: list[Any]) -> list[Any]:
        if self._accumulator is not None:
            return self._accumulator.added(grads, vars)
        return self._combiner.combined(grads, vars)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Make the wrapped optimizer's step; or, while passes accumulate, count it only."""
        pairs = list(grads_and_vars)
        step: Callable[[], Any] = lambda: self._optimizer.apply_gradients(pairs, global_step, name)  # noqa: E731
        if self._accumulator is None:
            return step()

        def make_step() -> Any:
            with tf.control_dependencies([done] if (done := step()) is not None else []):
                return tf.constant(True)

        def count() -> Any:
            counted = [] if global_step is None else [global_step.assign_add(tf.ones_like(global_step))]
            with tf.control_dependencies(counted):
                return tf.constant(False)

        if tf.compat.v1.executing_eagerly_outside_functions():
            with tf.init_scope():
                self._optimizer._create_slots([variable for _, variable in pairs])
        done = self._accumulator.when_complete(make_step, count, [gradient for gradient, _ in pairs])
        return done if tf.executing_eagerly() else done.op


class _AdasumSteps(_Wrapping):
    """Makes each rank's own step, and combines the changes."""

    def __init__(self, *args: Any, passes: int) -> None:
        super().__init__(*args)
        if passes > 1:
            raise InvalidArgumentError(
                "op=Adasum cannot be used with backward_passes_per_step here: steps are combined"
            )

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Make the wrapped optimizer's step, and combine all ranks' steps by Adasum."""
        pairs = list(grads_and_vars)
        gradients = self._combiner.compared([gradient for gradient, _ in pairs], [variable for _, variable in pairs])
        pairs = [(gradient, variable) for gradient, (_, variable) in zip(gradients, pairs, strict=True)]
        variables = [variable for gradient, variable in pairs if gradient is not None]
        before = [tf.identity(variable) for variable in variables]
        with tf.control_dependencies(before):
            done = self._optimizer.apply_gradients(pairs, global_step, name)
        with tf.control_dependencies([] if done is None else [done]):
            own = [variable.read_value() - old for variable, old in zip(variables, before, strict=True)]
            combined = self._combiner.combined(own, variables, has_stepped=True)
            assigned = [
                variable.assign(old + change) for variable, old, change in zip(variables, before, combined, strict=True)
            ]
            return tf.group(*assigned)


def _of_tensorflow_1(
    optimizer: Any, name: str | None, use_locking: bool, options: Options, groups: Groups, devices: tuple[str, str]
) -> Any:
    number = next_number(options.process_set) if name is None else None
    known_as = name or f"Distributed{type(optimizer).__name__}"
    own = replace(options, number=number)
    prefix = f"{PREFIX}.{known_as}"
    combiner = make_combiner(prefix, own, groups, *devices, after=after, check=make_check(prefix, own))
    if options.op == Adasum:
        return _AdasumSteps(optimizer, known_as, use_locking, combiner, passes=options.passes)
    accumulator = None
    if options.passes > 1:
        accumulator = Accumulator(combiner, options.passes, options.averages_passes, options.sparse_as_dense)
    return _Combining(optimizer, known_as, use_locking, combiner, accumulator=accumulator)


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = NoneCompressor,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    divisor: Divisor = "contributors",
    **for_keras: Any,
) -> Any:
    """Return an optimizer that uses the gradients of all ranks.

    An optimizer of Keras is wrapped by `ciranda.keras.DistributedOptimizer`, which explains the arguments. One of
    TensorFlow 1 (`tf.compat.v1.train.Optimizer`) combines the gradients that its `compute_gradients()` computes, and so
    `minimize()`'s; in a graph that accumulates passes, run `tf.compat.v1.local_variables_initializer()` first.

    Args:
        optimizer: of either kind.
        name: see `ciranda.keras.DistributedOptimizer`, as for all that follow.
        use_locking: for optimizers of TensorFlow 1.
        device_dense: where dense gradients are combined; "" for where they are.
        device_sparse: the same for sparse ones.
        compression: the compressor.
        sparse_as_dense: whether sparse gradients are made dense.
        backward_passes_per_step: how many passes accumulate.
        op: the reduce op of the gradients.
        gradient_predivide_factor: how the division of an average is split.
        average_aggregated_gradients: whether accumulated gradients are divided by the number of passes.
        num_groups: older form of `groups`.
        groups: the gradients that are combined together.
        process_set: the ranks whose gradients are combined.
        scale_local_gradients: whether gradients that are not combined are divided by the number of ranks.
        divisor: the divisor of an average while ranks have joined.
        for_keras: further arguments of `ciranda.keras.DistributedOptimizer`.
    """
    id_of(process_set)
    if isinstance(optimizer, _Wrapping):
        raise InvalidArgumentError("the optimizer is a DistributedOptimizer already")
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
        from ciranda import keras  # which is optional

        return keras.DistributedOptimizer(
            optimizer,
            name,
            device_dense,
            device_sparse,
            compression,
            sparse_as_dense,
            gradient_predivide_factor,
            op,
            backward_passes_per_step,
            average_aggregated_gradients,
            num_groups,
            groups,
            process_set,
            scale_local_gradients,
            divisor=divisor,
            **for_keras,
        )
    chosen = choose_op(op, None)
    check_factor(gradient_predivide_factor, chosen)
    divides_by_all(divisor)  # raises for an invalid one
    options = Options(
        compression,
        positive(backward_passes_per_step),
        chosen,
        gradient_predivide_factor,
        sparse_as_dense,
        process_set,
        divisor=divisor,
        scale_local=scale_local_gradients,
        averages_passes=average_aggregated_gradients,
    )
    devices = (device_dense, device_sparse)
    return _of_tensorflow_1(optimizer, name, use_locking, options, check_groups(groups, num_groups), devices)
