"""DistributedOptimizer of Keras 3: an optimizer of the wrapped one's class that steps with the gradients of all ranks.

Keras calls `_backend_apply_gradients()` with the gradients of a step, on every backend, in and out of graphs, and
before it clips them `_clip_gradients()`; if backward passes accumulate, once for all of them. The gradients are
combined there, so that clipping equals that of one process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from ciranda._frameworks.gradients import GradientCombiner
from ciranda._ops import Adasum
from ciranda.errors import InvalidArgumentError
from ciranda.keras import backends


class Combining:
    """The methods that DistributedOptimizer adds to an optimizer's class. The combined class has `_make_combiner`."""

    #: Returns a combiner for a further optimizer of this class.
    _make_combiner: Callable[[], GradientCombiner]
    #: The number of passes that accumulate before their gradients are combined, and the factor of the gradients.
    _passes: int
    _scale: float

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._begin()

    def _begin(self) -> None:
        object.__setattr__(self, "_combiner", type(self)._make_combiner())
        object.__setattr__(self, "_combined_variables", [])
        accumulated: int | None = self.gradient_accumulation_steps  # type: ignore[has-type]
        if self._passes > 1 and accumulated != self._passes:
            if accumulated:
                raise InvalidArgumentError("give either backward_passes_per_step or gradient_accumulation_steps")
            if self.built:  # type: ignore[attr-defined]
                raise InvalidArgumentError(
                    "backward_passes_per_step needs an optimizer that has not been built; wrap it before it is used"
                )
            self.gradient_accumulation_steps = self._passes

    def register_local_var(self, var: Any) -> None:
        """Keep the gradient of `var` local: it is not combined."""
        self._combiner.keep_local(var)  # type: ignore[attr-defined]

    def _all_finite(self, mine: Any) -> Any:
        """Return whether the gradients of all ranks are finite; `mine`: whether this rank's are."""
        everyones = self._combiner.least(keras.ops.cast(mine, "float32"))  # type: ignore[attr-defined]
        return keras.ops.cast(everyones, "bool")

    def _backend_apply_gradients(self, grads: Any, trainable_variables: Any) -> None:
        object.__setattr__(self, "_combined_variables", list(trainable_variables))
        super()._backend_apply_gradients(grads, trainable_variables)  # type: ignore[misc]

    def _clip_gradients(self, grads: Any) -> Any:
        return super()._clip_gradients(self._combined(list(grads)))  # type: ignore[misc]

    def _combined(self, gradients: list[Any]) -> list[Any]:
        def combine() -> list[Any]:
            variables = self._combined_variables  # type: ignore[attr-defined]
            return self._combiner.combined(gradients, variables, self._scale)  # type: ignore[attr-defined,no-any-return]

        steps = self.gradient_accumulation_steps
        if steps and backends.backend() == "jax":  # which calls this in the other passes, too
            is_last = (self._iterations + 1) % steps == 0  # type: ignore[attr-defined]
            return keras.ops.cond(is_last, combine, lambda: gradients)  # type: ignore[no-any-return]
        return combine()


class AdasumSteps(Combining):
    """The same with op=Adasum: each rank makes its own step, and the changes are combined."""

    def _clip_gradients(self, grads: Any) -> Any:
        return super(Combining, self)._clip_gradients(grads)  # type: ignore[misc]

    def _backend_apply_gradients(self, grads: Any, trainable_variables: Any) -> None:
        variables = list(trainable_variables)
        grads = self._combiner.compared(grads, variables)  # type: ignore[attr-defined]
        before = [keras.ops.copy(variable) for variable in variables]
        super()._backend_apply_gradients(grads, trainable_variables)
        changes = [variable - old for variable, old in zip(variables, before, strict=True)]
        combined = self._combiner.combined(changes, variables, has_stepped=True)  # type: ignore[attr-defined]
        for variable, old, change in zip(variables, before, combined, strict=True):
            variable.assign(old + change)


def added_for(op: int) -> type[Combining]:
    """Return the class that is added to an optimizer's class for a reduction."""
    return AdasumSteps if op == Adasum else Combining
