"""`horovod.tensorflow.gradient_aggregation`: gradients of several passes are added up before they are combined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ciranda import ProcessSet, global_process_set
from ciranda._frameworks.options import Options, positive
from ciranda.tensorflow import Average
from ciranda.tensorflow.accumulating import Accumulator
from ciranda.tensorflow.combining import make_combiner
from ciranda.tensorflow.compression import NoneCompressor


class _ByFunction:
    """Combines gradients with a function that takes gradients and variables, but for those of local variables."""

    def __init__(self, allreduce: Callable[..., Any], process_set: ProcessSet, scale_local: bool) -> None:
        options = Options(NoneCompressor, 1, Average, 1.0, False, process_set, scale_local=scale_local)
        self._local = make_combiner("LocalGradientAggregationHelper", options, None)
        self._allreduce = allreduce
        self.keep_local = self._local.keep_local

    def combined(self, gradients: Sequence[Any], variables: Sequence[Any], scale: float = 1.0) -> list[Any]:
        shared = [index for index, variable in enumerate(variables) if not self._local.is_local(variable)]
        results = self._local.combined(
            [None if index in shared else own for index, own in enumerate(gradients)], variables, scale
        )
        reduced = self._allreduce([gradients[index] for index in shared], [variables[index] for index in shared])
        for index, gradient in zip(shared, reduced, strict=True):
            results[index] = None if gradient is None else gradient * scale
        return results


class LocalGradientAggregationHelper:
    """Adds gradients up, and hands the sums to a function after every `backward_passes_per_step` passes."""

    _OPTIMIZER_TYPE_KERAS = "optimizer_type_keras"
    _OPTIMIZER_TYPE_LEGACY = "optimizer_type_legacy"

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[..., Any],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        rank: int = 0,
        optimizer_type: str = _OPTIMIZER_TYPE_KERAS,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
        name: str = "",
    ) -> None:
        self.backward_passes_per_step = positive(backward_passes_per_step)
        self._combiner = _ByFunction(allreduce_func, process_set, scale_local_gradients)
        combiner: Any = self._combiner
        self._accumulator = Accumulator(
            combiner, backward_passes_per_step, average_aggregated_gradients, sparse_as_dense
        )

    def register_local_var(self, var: Any) -> None:
        """Leave the gradient of `var` to each rank."""
        self._combiner.keep_local(var)

    def compute_gradients(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:
        """Add gradients; return the sums, which in the last of some passes are those of all ranks."""
        return self._accumulator.added(list(grads), list(vars))

    def apply_gradients(self, apply_grads_closure: Callable[[], Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the closure after the last of some passes; else count the step only."""

        def count() -> Any:
            iterations = getattr(optimizer, "iterations", None)
            return None if iterations is None else iterations.assign_add(1)

        return self._accumulator.when_complete(apply_grads_closure, count, [gradient for gradient, _ in args[0]])


class LocalGradientAggregationHelperEager(LocalGradientAggregationHelper):
    """The same: it serves eager execution and graphs alike."""

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[..., Any],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> None:
        super().__init__(
            backward_passes_per_step,
            allreduce_func,
            sparse_as_dense,
            average_aggregated_gradients,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        )
