"""Broadcasts of variables where a rank may have none: it takes part all the same, else the others would wait for it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ciranda.errors import MismatchError

_WHY = "a model or an optimizer that has not been built yet has no variables"


def no_variables(name: str) -> np.ndarray[Any, Any]:
    """Return what a rank without variables broadcasts in their place, and warn that it makes nothing equal."""
    warnings.warn(f"'{name}' has nothing to broadcast on this rank: {_WHY}", RuntimeWarning, stacklevel=3)
    return np.zeros(0, np.bool_)


def explained(error: MismatchError) -> MismatchError:
    """Return the error of a broadcast of variables that differ, saying what they may differ in."""
    return MismatchError(f"{error}. Note that {_WHY}, and takes part as one tensor of shape [0]")
