"""Steps that each rank makes by itself, under torch.amp.GradScaler too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ciranda._frameworks.options import Options
from ciranda.torch.wrapping import WrappedOptimizer

Tensor = torch.Tensor


class OwnSteps(WrappedOptimizer):
    """An optimizer whose step is made with this rank's own gradients, before ranks combine what came of it."""

    #: torch.amp.GradScaler then calls step() on every rank, with what it found, instead of skipping it on some.
    _step_supports_amp_scaling = True

    def _distribute(self, options: Options, names: dict[Tensor, str], members: list[list[Tensor]]) -> None:
        wrapped: Any = super()
        supports_scaling = getattr(wrapped, "_step_supports_amp_scaling", False)
        #: Whether the wrapped optimizer itself divides gradients by the scale of a GradScaler.
        self._unscales = vars(self).get("_step_supports_amp_scaling", supports_scaling)
        super()._distribute(options, names, members)

    @property
    def _must_skip(self) -> bool:
        """Whether a GradScaler has found gradients of this rank that are not finite."""
        return bool(vars(self).get("found_inf", False))

    def _step_alone(self, closure: Callable[[], Any] | None) -> Any:
        with self._unscaled():
            return super().step() if closure is None else super().step(closure)

    @contextmanager
    def _unscaled(self) -> Iterator[None]:
        """Within this, gradients are without the scale of a GradScaler, which leaves what it knows as attributes."""
        scale = vars(self).get("grad_scale")
        if self._unscales or "found_inf" not in vars(self):
            yield
            return
        if scale is not None:
            gradients = [parameter.grad for parameter in self._parameter_names if parameter.grad is not None]
            for gradient in gradients:
                gradient.mul_(scale.double().reciprocal().to(gradient.dtype))
        found = {name: vars(self).pop(name) for name in ("grad_scale", "found_inf")}
        try:
            yield
        finally:
            vars(self).update(found)
