"""The check that all ranks have the same variables of Keras, on its backend torch."""

from __future__ import annotations

from typing import Any

from ciranda._frameworks.options import PREFIX, Options
from ciranda._frameworks.parameters import KERAS_REMEDY, Contents, Parameter, ParameterCheck
from ciranda.torch.tensors import comparable


def make_check(name: str, options: Options) -> ParameterCheck:
    """Return the check of the variables of gradients that have this name."""
    return ParameterCheck(
        options.numbered(name), PREFIX, options.process_set, _contents, KERAS_REMEDY, only_warn=options.only_warns
    )


def compare(check: ParameterCheck, parameters: list[Parameter], gradients: list[Any]) -> list[Any]:
    """Compare variables: see `ciranda._frameworks.gradients.Compare`."""
    check.compare_later(parameters)
    return gradients


def _contents(variable: Any) -> Contents | None:
    return comparable(variable.value)
