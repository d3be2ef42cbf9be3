"""Variables that this process has changed by itself, before its first world: an elastic state must share them.

Scripts for elastic jobs make a step before training, to have all variables of a model and its optimizer created. Its
gradients are this process's own. That does no harm if the state gives these variables rank 0's values.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from ciranda._basics import world
from ciranda._frameworks.gradients import identity_of
from ciranda.errors import InvalidArgumentError

_found: dict[int, Any] = {}
_N_NAMED = 3


def is_outside() -> bool:
    """Whether this process is to join its first world, in the function that `elastic.run` wraps."""
    return world.engine is None and world.awaited is not None


def note(variables: Iterable[Any]) -> None:
    """Note variables that are changed, of which some may be tensors; warn, the first time."""
    if not _found:
        warnings.warn(
            "a step before the function that elastic.run wraps uses this process's gradients alone, since it is in no "
            "world yet. The state gives the variables rank 0's values when it joins one",
            RuntimeWarning,
            stacklevel=2,
        )
    _found.update((identity_of(variable), variable) for variable in variables if hasattr(variable, "assign"))


def share(variables: Iterable[Any]) -> None:
    """Note variables that have rank 0's values now."""
    for variable in variables:
        _found.pop(identity_of(variable), None)


def require_none() -> None:
    """Raise InvalidArgumentError if there are variables that each rank has changed by itself."""
    if not _found:
        return
    names = [getattr(variable, "path", None) or variable.name for variable in _found.values()]
    more = f" and {len(names) - _N_NAMED} more" if len(names) > _N_NAMED else ""
    raise InvalidArgumentError(
        f"each rank has changed {', '.join(map(repr, names[:_N_NAMED]))}{more} by itself, in a step before the "
        "function that elastic.run wraps, and the state does not have them: put the model and its optimizer into the "
        "state, or make the step in the function"
    )
