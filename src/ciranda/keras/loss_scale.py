"""Ranks that skip steps together: a LossScaleOptimizer leaves a step out where gradients are not finite."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def agree_on_finite(scaler: type, is_distributed: Callable[[Any], bool]) -> None:
    """Make LossScaleOptimizers with a distributed inner optimizer ask all ranks whether gradients are finite.

    Keras puts a LossScaleOptimizer around the optimizer of a model that computes in float16, and has no other place
    where this could be said. Without it, a rank whose gradients are not finite would leave out the collective that the
    others are in.
    """
    original: Callable[[Any, Any], Any] = scaler.check_finite  # type: ignore[attr-defined]
    if hasattr(original, "_ciranda_agrees"):
        return

    def check_finite(self: Any, grads: Any) -> Any:
        mine = original(self, grads)
        inner = self.inner_optimizer
        return inner._all_finite(mine) if is_distributed(inner) else mine

    check_finite._ciranda_agrees = True  # type: ignore[attr-defined]
    scaler.check_finite = check_finite  # type: ignore[attr-defined]


def share_overflow(scalers: Iterable[type], is_distributed: Callable[[Any], bool]) -> None:
    """Make LossScaleOptimizers of Keras 2 with a distributed inner optimizer skip the steps that any rank skips.

    They look at the gradients that they are about to apply. Of those that are this rank's own, as of local layers or
    while passes accumulate, the other ranks do not see that they are not finite: this rank alone would leave the step
    out, and halve its scale.
    """
    for scaler in scalers:
        _share_overflow_of(scaler, is_distributed)


def _share_overflow_of(scaler: type, is_distributed: Callable[[Any], bool]) -> None:
    original: Callable[..., Any] = scaler.apply_gradients  # type: ignore[attr-defined]
    if hasattr(original, "_ciranda_shares"):
        return

    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        inner = self.inner_optimizer
        if self.dynamic and is_distributed(inner):
            pairs = inner._with_overflow_of_all(pairs)
        return original(self, pairs, *args, **kwargs)

    apply_gradients._ciranda_shares = True  # type: ignore[attr-defined]
    scaler.apply_gradients = apply_gradients  # type: ignore[attr-defined]
