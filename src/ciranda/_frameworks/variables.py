"""Broadcasts of variables of which a rank may have none: it takes part nevertheless, since the others wait for it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ciranda.errors import MismatchError

_WHY = "a model or an optimizer that has not been built yet has no variables"


def no_variables(name: str) -> np.ndarray[Any, Any]:
    """Return the tensor that a rank without variables broadcasts instead, and warn that variables are not equalized."""
    warnings.warn(f"'{name}' has nothing to broadcast on this rank: {_WHY}", RuntimeWarning, stacklevel=3)
    return np.zeros(0, np.bool_)


def explained(error: MismatchError) -> MismatchError:
    """Return the error of a broadcast of variables that differ, saying what they may differ in."""
    return MismatchError(f"{error}. Note that {_WHY}, and takes part as one tensor of shape [0]")
