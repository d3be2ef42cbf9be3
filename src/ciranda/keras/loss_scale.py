"""Ranks that skip steps together: a LossScaleOptimizer leaves a step out where gradients are not finite."""

from __future__ import annotations

from collections.abc import Callable
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
