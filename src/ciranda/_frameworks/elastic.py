"""Training in any framework that starts again from its last commit when a collective has failed."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from ciranda import _basics
from ciranda.elastic import run_fn
from ciranda.errors import HorovodInternalError

Result = TypeVar("Result")


def reset() -> None:
    """Leave the circle, and form a new one of the same processes."""
    ended = _basics.circle.engine
    _basics.shutdown()
    _basics.init(num_lanes=None if ended is None else ended.num_lanes)


def run(
    func: Callable[..., Result], is_failure: Callable[[Exception], bool] = lambda error: False
) -> Callable[..., Result]:
    """Return `func(state, ...)`, which is called again, on all ranks, when a collective has failed on any.

    Args:
        func: what trains.
        is_failure: whether an exception, as a framework raises it, is that of a collective that failed.
    """

    @wraps(func)
    def translated(*args: Any, **kwargs: Any) -> Result:
        try:
            return func(*args, **kwargs)
        except HorovodInternalError:
            raise
        except Exception as error:
            if is_failure(error):
                raise HorovodInternalError(str(error)) from error
            raise

    return run_fn(translated, reset)
