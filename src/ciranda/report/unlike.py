"""What a rank did more than the others. Pure.

On a busy machine all ranks may mostly sleep, and lack cores: what sets the slow one apart is that of which it did more.

Of `ciranda.launch.doing.Doing`, as plain values.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

_NOTABLE = 0.1  # of the time, more than the median of the others
_LEAST, _TIMES = 0.02, 2.0  # or more than this, and a multiple of theirs
_MOST_SAID = 2
#: By field the word of `Doing` for it, and a phrase with the share.
_SIGNS = {
    "cpu": ("computes", "used {} of a core"),
    "stopped": ("stopped", "was stopped {} of the time"),
    "throttled": ("throttled", "was throttled {} of the time"),
    "lacked_core": ("no core", "waited for a core {} of the time"),
    "disk": ("disk", "waited for the disk {} of the time"),
    "memory": ("memory", "lacked memory {} of the time"),
    "slept": ("sleeps", "slept {} of the time"),
    "thread": ("blocked", "waited for another of its threads {} of the time"),
    "input": ("input", "waited for input {} of the time"),
}

Facts = Mapping[str, Any]


def unlike_others(ranks: Sequence[Facts]) -> list[dict[str, str] | None]:
    """For each rank ``mostly``, a word as of `Doing`, and ``words``.

    None for one that did what the others did, or where nothing is known.
    """
    known = [rank["doing"] for rank in ranks if rank["doing"]]
    shares = {sign: sorted(doing[sign] for doing in known) for sign in _SIGNS}
    is_comparable = len(known) > 1
    return [_unlike(rank["doing"], shares) if rank["doing"] and is_comparable else None for rank in ranks]


def _unlike(doing: Facts, shares: Mapping[str, Sequence[float]]) -> dict[str, str] | None:
    """``shares``: of all ranks, by sign, in order."""
    usual = {sign: _median_without(shares[sign], doing[sign]) for sign in _SIGNS}
    more = sorted((sign for sign in _SIGNS if _is_more(doing[sign], usual[sign])),
                  key=lambda sign: usual[sign] - doing[sign])  # fmt: skip
    if not more or doing[more[0]] - usual[more[0]] < _NOTABLE:
        return None
    said = [f"{_SIGNS[sign][1].format(f'{doing[sign]:.0%}')} (the others {usual[sign]:.0%})"
            for sign in more[:_MOST_SAID]]  # fmt: skip
    return {"mostly": _SIGNS[more[0]][0], "words": ", and ".join(said)}


def _median_without(ordered: Sequence[float], one: float) -> float:
    """Of all but one of them."""
    at = bisect_left(ordered, one)
    middle = ((len(ordered) - 2) // 2, (len(ordered) - 1) // 2)
    return sum(ordered[each if each < at else each + 1] for each in middle) / 2


def _is_more(share: float, usual: float) -> bool:
    more = share - usual
    return more >= _NOTABLE or (more >= _LEAST and share >= _TIMES * usual)
