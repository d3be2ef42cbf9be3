"""Forming another world after the ranks' programs have diverged by a failure.

A rank that fails alone, as a test does by an assertion, skips calls: its next call is paired with an earlier call of
the others, and fails on all of them, as do all later calls. Programs that continue, as suites of tests do, call
`init()` at the beginning of each part. There the ranks leave the world, form another, and exchange how often they have
called `init()`. Those that are ahead leave it again, and wait for the next. A rank that is behind stays: its calls
fail, since the others have left, and so it reaches the call in which they wait. It may just be slower: a call that all
ranks make has failed on the others, and it has yet to make it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ciranda import _core
from ciranda._ops import ALLGATHER, terms_of
from ciranda.process_sets import ProcessSet, added_sets


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
    left = Left(engine.num_lanes, added_sets())
    end()
    return left


def compare(engine: _core.Engine, n_inits: int) -> int | None:
    """Compare how often the ranks have called init(); 0 for a rank that does not report it. Every rank must call this.

    Returns:
        How many calls this rank is behind: 0 if all reported numbers are equal. None: others are behind, for which this
        rank has to wait.
    """
    import numpy as np  # not before it is needed: importing takes a while

    (counts,) = engine.run(terms_of(ALLGATHER), np.array([n_inits], np.int64), None, "ciranda.init")
    told = {int(count) for count in counts} - {0}
    if len(told) <= 1:
        return 0
    return (max(told) - n_inits or None) if n_inits else None
