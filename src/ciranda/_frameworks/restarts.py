"""Training in any framework that starts again from its last commit when a collective has failed."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from ciranda import _basics, _init
from ciranda._frameworks import unshared
from ciranda._frameworks.error_classes import converted
from ciranda.elastic import run_fn
from ciranda.errors import HorovodInternalError

Result = TypeVar("Result")


def reset() -> None:
    """Leave the world, and form a new one of the same processes."""
    ended = _basics.world.engine
    _init.shutdown()
    for forget in _basics.between_worlds:
        forget()
    _init.init(num_lanes=None if ended is None else ended.num_lanes)


def run(
    func: Callable[..., Result], as_ciranda_error: Callable[[Exception], Exception | None] = lambda error: None
) -> Callable[..., Result]:
    """Return `func(state, ...)`; it is called again, on all ranks, after a collective has failed on any.

    Args:
        func: the training function.
        as_ciranda_error: returns the error of `ciranda.errors` for an exception of a framework, or None.
    """

    def stands_for(error: Exception) -> Exception | None:
        return None if isinstance(error, HorovodInternalError) else as_ciranda_error(error)

    @wraps(func)
    def begun(*args: Any, **kwargs: Any) -> Result:
        unshared.require_none()
        return func(*args, **kwargs)

    return run_fn(begun, reset, lambda: converted(stands_for))
