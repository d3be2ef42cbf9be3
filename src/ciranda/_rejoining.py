"""Forming another world after the ranks' programs have diverged by a failure.

A rank that fails alone, as a test does by an assertion, skips calls: its next call is paired with an earlier call of
the others, and fails on all of them, as do all later calls. Programs that continue, as suites of tests do, call
`init()` at the beginning of each part. There the ranks leave the world, form another, and exchange how often they have
called `init()`: a rank that is behind gets an error, after which it reaches the call in which the others wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ciranda import _core
from ciranda.errors import MismatchError

if TYPE_CHECKING:
    from ciranda.process_sets import ProcessSet

_ALLGATHER = _core.COLLECTIVES["allgather"]
_SUM = _core.REDUCE_OPS["sum"]


@dataclass(frozen=True)
class Left:
    """The state that the next world takes over."""

    num_lanes: int
    process_sets: list[ProcessSet]


def is_due(engine: _core.Engine) -> bool:
    """Whether the world must be replaced by another, in which the ranks synchronize."""
    return engine.has_failed and engine.size > 1


def leave(engine: _core.Engine, end: Callable[[], None]) -> Left:
    """Leave the world by `end`."""
    from ciranda.process_sets import added_sets  # which needs the module that needs this one

    left = Left(engine.num_lanes, added_sets())
    end()
    return left


def compare(engine: _core.Engine, n_inits: int) -> bool:
    """Compare how often the ranks have called init(); 0 for a rank that does not report it. Every rank must call this.

    Returns:
        Whether all reported numbers are equal. If not, all leave: those behind by the error, the others to wait.

    Raises:
        MismatchError: this rank has called it less often than another.
    """
    import numpy as np  # not before it is needed: importing takes a while

    (counts,) = engine.run(_ALLGATHER, np.array([n_inits], np.int64), None, "ciranda.init", _SUM, -1, 1.0, 1.0)
    told = {int(count) for count in counts} - {0}
    if len(told) <= 1:
        return True
    if n_inits and n_inits < max(told):
        ahead = [rank for rank, count in enumerate(counts) if count == max(told)]
        raise MismatchError(
            f"init(): rank {engine.rank} has called it {n_inits} times, but rank {ahead[0]} has {max(told)} times: a "
            "failure has set their programs apart. The others wait for this rank in its next calls of init()"
        )
    return False
