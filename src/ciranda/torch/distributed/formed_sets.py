"""The process sets that groups form: each ends with its group, in whatever way that ends.

A group ends when it is destroyed or dropped, with the default group, or with the world. Its rank then leaves the set,
and the engine frees the set's memory on all of its ranks.

In an elastic job each world has a store of its own, and processes that have been in none of those before: there groups
are numbered anew.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Sequence

from ciranda import _basics, _core, _line

_REMOVE = _core.COLLECTIVES["remove_process_set"]


class _Formed:
    """How many groups this process has numbered in this world; the next has others by the same numbers."""

    era = object()
    n_numbered = 0


_formed = _Formed()
_n_alike: Counter[str] = Counter()  # of all worlds, since the store of a launcher lasts longer


def era() -> object:
    """Return what stands for the present world, and for no other."""
    return _formed.era


def next_number() -> int:
    """Return a number that this process has given no group of this world."""
    _formed.n_numbered += 1
    return _formed.n_numbered - 1


def next_place(name: str, ranks: Sequence[int]) -> str:
    """Return what the entries of a group in the store begin with, and no other group's have begun with.

    torch gives names again. All members have formed as many groups of this name and these ranks; of the name alone,
    those have formed fewer that were in no other group of it.
    """
    alike = f"ciranda/{name}/{' '.join(map(str, ranks))}"
    _n_alike[alike] += 1
    return f"{alike}/{_n_alike[alike]}"


def leaver(group: object, process_set: int) -> Callable[[], object]:
    """Return the function by which this rank leaves the set of `group`, once. It is also called when that is gone."""
    leave = weakref.finalize(group, _leave, process_set, _formed.era)
    leave.atexit = False  # the world ends there, too
    return leave


def _leave(process_set: int, era: object) -> None:
    engine = _basics.world.engine
    if process_set != 0 and era is _formed.era and engine is not None and engine.is_open:
        engine.submit_bare(_REMOVE, [process_set])


def _forget() -> None:
    _formed.era, _formed.n_numbered = object(), 0
    if _line.line() is not None:
        _n_alike.clear()


_basics.at_end.append(_forget)
