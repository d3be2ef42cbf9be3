"""Backward passes since the last step: errors of a wrong number, and their count where gradients stay on a rank."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ciranda._frameworks.misuse import Misuse, opened
from ciranda._frameworks.options import PREFIX, Options

Tensor = torch.Tensor


def error_of_more_passes(options: Options, name: str) -> AssertionError:
    """Return the error that the gradient of the parameter `name` was computed too often."""
    text = (
        f"the gradient of {PREFIX}.{name} was computed more than {options.passes} times (its backward_passes_per_step) "
        "before step() or synchronize(); raise backward_passes_per_step to accumulate gradients; to leave out a batch, "
        "on all ranks, call synchronize() and then zero_grad() of the optimizer"
    )
    return AssertionError(opened(options.openings, Misuse.MORE_PASSES, text))


def error_of_early_zero_grad(options: Options, what_for: str) -> AssertionError:
    """Return the error that gradients were to be cleared although a step needs them, and what it needs them for."""
    text = (
        "zero_grad() was called between backward() and step() or synchronize(), while the gradients are being "
        f"{what_for}; call it before backward() or after step(); to leave out a batch, on all ranks, call "
        "synchronize() before it"
    )
    return AssertionError(opened(options.openings, Misuse.ZEROED_BEFORE_STEP, text))


class Passes:
    """How many backward passes have reached each parameter.

    The hooks on the parameters refer to this, and this to neither optimizer nor parameters, so that no cycle keeps a
    dropped optimizer alive.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._made: dict[str, int] = {}

    def make_hook(self, name: str) -> Callable[[Tensor], None]:
        """Return the hook to call whenever a gradient of the parameter with this name has been accumulated."""

        def on_gradient(_parameter: Tensor) -> None:
            made = self._made[name] = self._made.get(name, 0) + 1
            if made > self._options.passes:
                raise error_of_more_passes(self._options, name)

        return on_gradient

    @property
    def are_complete(self) -> bool:
        """Whether a parameter has the gradient of all passes of a step."""
        return any(made >= self._options.passes for made in self._made.values())

    def restart(self) -> None:
        """Count the passes of the next step."""
        self._made.clear()
