"""Skipping steps on all ranks together: a LossScaleOptimizer skips a step if gradients are not finite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import keras

from ciranda._frameworks.gradients import combiner_that_keeps
from ciranda.keras import backends
from ciranda.keras.marked import is_distributed

_MARK = "_ciranda_shares"

Original = Callable[..., Any]


def share_overflow() -> None:
    """Make LossScaleOptimizers skip the steps that any rank skips, if ranks have local gradients.

    These are the gradients of a rank before a distributed inner optimizer combines them, and those of variables that a
    tape keeps local. Keras wraps the optimizer of a model that computes in float16 by a LossScaleOptimizer, and has no
    other hook for this. Without it, a rank whose gradients are not finite would alone skip the step, or the collective
    in which the others wait, and halve its scale.
    """
    if backends.is_keras_3():
        scaler = keras.optimizers.LossScaleOptimizer
        _wrap(scaler, ["check_finite"], _check_finite)
        return
    for scaler in keras.mixed_precision.LossScaleOptimizer.__subclasses__():
        _wrap(scaler, ["apply_gradients"], _apply_gradients)
        computing = ["compute_gradients", "_compute_gradients", "get_gradients"]
        _wrap(scaler, computing, _compute_gradients)


def _wrap(scaler: type, names: Iterable[str], instead: Callable[..., Any]) -> None:
    """Replace methods of a class by functions whose first argument is the original."""
    for name in names:
        original: Original | None = vars(scaler).get(name)
        if original is None or hasattr(original, _MARK):
            continue

        def method(self: Any, *args: Any, _original: Original = original, **kwargs: Any) -> Any:
            return instead(_original, self, *args, **kwargs)

        setattr(method, _MARK, True)
        setattr(scaler, name, method)


@contextmanager
def _told(inner: Any, attribute: str, value: Any) -> Iterator[None]:
    """Set an attribute of an optimizer within the context, bypassing Keras' own setter."""
    before = getattr(inner, attribute, None)
    object.__setattr__(inner, attribute, value)
    try:
        yield
    finally:
        object.__setattr__(inner, attribute, before)


def _check_finite(original: Original, scaler: Any, grads: Any) -> Any:
    mine = original(scaler, grads)
    inner = scaler.inner_optimizer
    if is_distributed(inner):
        return inner._all_finite(mine)
    combiner = combiner_that_keeps(getattr(inner, "_trainable_variables", ()))
    if combiner is None:
        return mine
    return keras.ops.cast(combiner.least(keras.ops.cast(mine, "float32")), "bool")


def _apply_gradients(original: Original, scaler: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
    pairs = list(grads_and_vars)
    inner = scaler.inner_optimizer
    if not scaler.dynamic:
        return original(scaler, pairs, *args, **kwargs)
    if is_distributed(inner):
        with _told(inner, "_applying_scaler", scaler):
            return original(scaler, inner._with_overflow_of_all(pairs), *args, **kwargs)
    combiner = combiner_that_keeps(variable for _, variable in pairs)
    if combiner is not None:
        from ciranda.keras.overflow import with_overflow_of_all  # TensorFlow's, for Keras 2

        pairs = with_overflow_of_all(combiner, pairs, combiner.is_local)
    return original(scaler, pairs, *args, **kwargs)


def _compute_gradients(original: Original, scaler: Any, *args: Any, **kwargs: Any) -> Any:
    inner = scaler.inner_optimizer
    if not is_distributed(inner):
        return original(scaler, *args, **kwargs)
    with _told(inner, "_computing_scaler", scaler):
        return original(scaler, *args, **kwargs)
