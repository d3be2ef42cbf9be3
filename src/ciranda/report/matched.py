"""Which rank came last to each collective, for the calls of all ranks as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ciranda.launch.matching import Call
from ciranda.launch.matching import Sequence as Collectives
from ciranda.report.rank_calls import Ints, Key, RankCalls

NOBODY = -1


class Lasts:
    """For each rank an array over its calls: who came last, an index of the ranks or NOBODY, and when."""

    def __init__(self, ranks: Sequence[RankCalls]) -> None:
        self.who = [np.full(len(calls.key), NOBODY, np.int64) for calls in ranks]
        self.when = [calls.submitted.copy() for calls in ranks]


def find_lasts(ranks: Sequence[RankCalls], n_ranks: int, tolerance: int) -> Lasts:
    """Who came last to what. Nobody is named for what failed on some rank, or of which a rank's record is missing.

    ``n_ranks``: of the world. ``tolerance``: how far the clocks of two ranks may be apart, in nanoseconds.
    """
    lasts = Lasts(ranks)
    of_key: dict[Key, list[tuple[int, Ints]]] = {}
    for index, calls in enumerate(ranks):
        order = np.argsort(calls.key, kind="stable")
        ends = np.searchsorted(calls.key[order], np.arange(len(calls.keys) + 1))
        for number, key in enumerate(calls.keys):
            of_key.setdefault(key, []).append((index, order[ends[number] : ends[number + 1]]))
    for (_, _, process_set, _), members in of_key.items():
        if len(members) < 2 or (process_set == 0 and len(members) < n_ranks):
            continue
        if not _match_in_order(ranks, members, tolerance, lasts):
            _match_one_by_one(ranks, members, tolerance, n_ranks if process_set == 0 else 0, lasts)
    return lasts


def _match_in_order(
    ranks: Sequence[RankCalls], members: Sequence[tuple[int, Ints]], tolerance: int, lasts: Lasts
) -> bool:
    """Take the n-th calls of the ranks for one collective; False if they cannot be that."""
    if len({len(at) for _, at in members}) > 1:
        return False
    arrived = np.stack([ranks[index].arrived[at] for index, at in members])
    done = np.stack([ranks[index].done[at] for index, at in members])
    if np.any(arrived.max(axis=0) > done.min(axis=0) + tolerance):
        return False
    failed = np.stack([ranks[index].outcome[at] for index, at in members]).any(axis=0)
    last = arrived.argmax(axis=0)
    who = np.where(failed, NOBODY, np.array([index for index, _ in members])[last])
    for index, at in members:
        lasts.who[index][at] = who
        lasts.when[index][at] = arrived.max(axis=0)
    return True


def _match_one_by_one(
    ranks: Sequence[RankCalls], members: Sequence[tuple[int, Ints]], tolerance: int, n_members: int, lasts: Lasts
) -> None:
    collectives = Collectives()
    groups = []
    for call in sorted(_calls(ranks, members)):
        groups += collectives.add(call, tolerance, n_members)
    for group in [*groups, *collectives.rest()]:
        if group.all_ok and len(group.calls) > 1 and len(group.calls) >= n_members:
            for call in group.calls:
                lasts.who[call.rank][call.row] = group.last.rank
                lasts.when[call.rank][call.row] = group.last.arrived


def _calls(ranks: Sequence[RankCalls], members: Sequence[tuple[int, Ints]]) -> Iterator[Call]:
    for index, at in members:
        calls = ranks[index]
        for number in at.tolist():
            arrived, agreed, done = (int(each[number]) for each in (calls.arrived, calls.agreed, calls.done))
            is_ok = not calls.outcome[number]
            yield Call(done, index, int(calls.submitted[number]), arrived, agreed, agreed, is_ok, number)
