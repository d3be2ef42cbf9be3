"""What the records of a job tell of its steps: where each rank's time went, whom it waited for, and what sizes took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ciranda.launch.clocks import Reading
from ciranda.launch.errors import LaunchError, ProtocolError
from ciranda.launch.page import COLLECTIVES
from ciranda.launch.record_file import DTYPES
from ciranda.launch.timeline import LEAST_WAIT_NS
from ciranda.report.job import LeftJob
from ciranda.report.matched import NOBODY, find_lasts
from ciranda.report.rank_calls import Ints, RankCalls, load

_MOST_BINS = 120
_MOST_TENSORS = 10
_NS = 1e9

Floats = npt.NDArray[np.float64]


@dataclass
class _Parts:
    """A rank's time in each of its calls, by stage, in nanoseconds; of two calls at a time the earlier one has it."""

    step: Ints  # of each call; NOBODY for one outside
    waited: Ints
    agreed: Ints
    moved: Ints


def steps_of(job: LeftJob) -> dict[str, Any] | None:
    """The facts; None where nothing was recorded. LaunchError if the records are of another version."""
    numbers = sorted(job.records)
    clocks = {host: [Reading(*reading) for reading in readings] for host, readings in job.clocks.items()}
    try:
        loaded = {rank: load(job.records[rank], clocks.get(job.host_of[rank], ())) for rank in numbers}
    except ProtocolError as error:
        raise LaunchError(f"{job.directory}: {error}") from None
    found = {rank: calls for rank, calls in loaded.items() if calls is not None and len(calls.key)}
    if not found:
        return None
    return _Analysis(list(found), list(found.values()), len(job.host_of), _bound(clocks)).facts()


def _bound(clocks: dict[str, list[Reading]]) -> int:
    """How far the converted times of two ranks may be apart: the errors of two hosts add up."""
    bounds = sorted(max(reading.bound for reading in readings) for readings in clocks.values() if readings)
    return sum(bounds[-2:])


class _Analysis:
    def __init__(self, numbers: list[int], ranks: list[RankCalls], n_ranks: int, bound: int) -> None:
        self._numbers = numbers
        self._ranks = ranks
        self._bound = bound
        self._lasts = find_lasts(ranks, n_ranks, bound)
        self._steps, self._bounds = _bounds(ranks)
        self._parts = [self._parts_of(index) for index in range(len(ranks))]

    def facts(self) -> dict[str, Any]:
        n_steps = len(self._bounds[0]) - 1
        waits = np.stack([self._waits_of(index) for index in range(len(self._ranks))])  # rank, step, last
        held_up = waits.max(axis=0)  # step, last: the longest wait of any rank
        walls = np.diff(np.stack(self._bounds)) / _NS  # rank, step
        bins = _bins(n_steps)
        return {
            "first_step": int(self._steps[0]) if len(self._steps) else None,
            "steps": len(self._steps),
            "calls": sum(len(calls.key) for calls in self._ranks),
            "lost_calls": sum(calls.n_lost for calls in self._ranks),
            "clock_bound_seconds": self._bound / _NS,
            "median_step_seconds": float(np.median(walls)),
            "bins": [
                {"from": begin, "until": end, "step_seconds": float(walls[:, begin:end].mean())} for begin, end in bins
            ],
            "ranks": [self._rank(index, walls[index], waits[index], held_up) for index in range(len(self._ranks))],
            "waited_for_seconds": [
                [float(held_up[begin:end, index].mean()) for begin, end in bins] for index in range(len(self._ranks))
            ],
            "sizes": self._sizes(),
            "tensors": self._tensors(),
        }

    def _parts_of(self, index: int) -> _Parts:
        """Each call has what of its time no earlier call of this rank has: the first part is left out."""
        calls = self._ranks[index]
        begin = _begins(calls.submitted, calls.done)
        last = np.clip(self._lasts.when[index], calls.submitted, calls.agreed)
        is_wait = self._lasts.when[index] - calls.arrived >= max(LEAST_WAIT_NS, self._bound)
        waited_until = np.where(is_wait, last, calls.submitted)
        bounds = self._bounds[index]
        step = np.searchsorted(bounds, calls.done, side="left") - 1
        return _Parts(
            step=np.where((step >= 0) & (step < len(bounds) - 1), step, NOBODY),
            waited=np.maximum(0, waited_until - begin),
            agreed=np.maximum(0, calls.agreed - np.maximum(begin, waited_until)),
            moved=np.maximum(0, calls.done - np.maximum(begin, calls.agreed)),
        )

    def _waits_of(self, index: int) -> Floats:
        """By step and by the rank that came last."""
        parts, who = self._parts[index], self._lasts.who[index]
        n_steps, n_ranks = len(self._bounds[index]) - 1, len(self._ranks)
        counts = (parts.step != NOBODY) & (who != NOBODY)
        at = parts.step[counts] * n_ranks + who[counts]
        sums = np.bincount(at, weights=parts.waited[counts], minlength=n_steps * n_ranks)
        return sums.reshape(n_steps, n_ranks) / _NS

    def _rank(self, index: int, walls: Floats, waits: Floats, held_up: Floats) -> dict[str, Any]:
        parts = self._parts[index]
        inside = parts.step != NOBODY
        seconds = float(walls.sum())
        waited, agreed, moved = (float(each[inside].sum()) / _NS for each in (parts.waited, parts.agreed, parts.moved))
        for_whom = waits.sum(axis=0)
        return {
            "rank": self._numbers[index],
            "seconds": seconds,
            "computed_seconds": max(0.0, seconds - waited - agreed - moved),
            "waited_seconds": waited,
            "waited_for": {
                str(self._numbers[last]): float(for_whom[last]) for last in range(len(for_whom)) if for_whom[last] > 0
            },
            "agreed_seconds": agreed,
            "moved_seconds": moved,
            "held_up_seconds": float(held_up[:, index].sum()),
            "median_held_up_seconds": float(np.median(held_up[:, index])),
        }

    def _sizes(self) -> list[dict[str, Any]]:
        """By collective, element type and size class, a power of two; failed calls are left out."""
        found: dict[tuple[int, int, int], list[npt.NDArray[Any]]] = {}
        by: dict[tuple[int, int, int], Counter[str]] = {}
        for calls in self._ranks:
            collective = np.array([key[0] for key in calls.keys])[calls.key]
            size = np.where(calls.n_bytes > 0, np.floor(np.log2(np.maximum(1, calls.n_bytes))), -1).astype(np.int64)
            row = (collective << 16) + (calls.dtype << 8) + (size + 1)
            is_ok = calls.outcome == 0
            for number in np.unique(row[is_ok]).tolist():
                of = is_ok & (row == number)
                key = (number >> 16, number >> 8 & 0xFF, (number & 0xFF) - 1)
                n_bytes, submitted, agreed, done = (
                    each[of] for each in (calls.n_bytes, calls.submitted, calls.agreed, calls.done)
                )
                columns = (n_bytes, agreed - submitted, done - agreed, _alone(agreed, done))
                found.setdefault(key, []).append(np.stack(columns))
                n_by = np.bincount(calls.algorithm[of], minlength=len(calls.algorithms)).tolist()
                by.setdefault(key, Counter()).update(
                    {name: n for name, n in zip(calls.algorithms, n_by, strict=True) if name and n}
                )
        return [
            {**_size(*key, np.concatenate(pieces, axis=1)), "algorithms": dict(by[key].most_common())}
            for key, pieces in sorted(found.items())
        ]

    def _tensors(self) -> list[dict[str, Any]]:
        """Those whose calls took most time of all ranks together."""
        sums: dict[tuple[int, str], npt.NDArray[np.int64]] = {}
        for calls, parts in zip(self._ranks, self._parts, strict=True):
            ones = np.ones(len(calls.key), np.int64)
            for number, (collective, name, _, _) in enumerate(calls.keys):
                of = calls.key == number
                each = np.array([column[of].sum() for column in (ones, calls.n_bytes, parts.waited, parts.agreed,
                                                                 parts.moved)])  # fmt: skip
                sums[collective, name] = sums.get((collective, name), 0) + each
        ordered = sorted(sums.items(), key=lambda item: -int(item[1][2:].sum()))[:_MOST_TENSORS]
        return [
            {
                "collective": _at(COLLECTIVES, collective),
                "name": name,
                "calls": int(of[0]),
                "bytes": int(of[1]),
                "waited_seconds": of[2] / _NS,
                "agreed_seconds": of[3] / _NS,
                "moved_seconds": of[4] / _NS,
            }
            for (collective, name), of in ordered
        ]


def _begins(begin: Ints, end: Ints) -> Ints:
    """When each span begins to be alone: after the ends of all that begin before it. It may be after its own end."""
    order = np.argsort(begin, kind="stable")
    latest = np.maximum.accumulate(end[order])
    begins: Ints = begin.copy()
    begins[order[1:]] = np.maximum(begin[order[1:]], latest[:-1])
    return begins


def _alone(begin: Ints, end: Ints) -> Ints:
    """How long each span is without what the spans before it have; together, how long there was any."""
    spans: Ints = np.maximum(0, end - _begins(begin, end))
    return spans


def _bounds(ranks: Sequence[RankCalls]) -> tuple[Ints, list[Ints]]:
    """The numbers of the steps of which all ranks have both ends, and each rank's ends of steps, one more.

    Without such steps, all that was recorded is taken for one.
    """
    common = ranks[0].step_number
    for calls in ranks[1:]:
        common = np.intersect1d(common, calls.step_number)
    if len(common) < 2:
        whole = [np.array([calls.submitted.min() - 1, calls.done.max()]) for calls in ranks]
        return np.empty(0, np.int64), whole
    ends = [calls.step_end[np.searchsorted(calls.step_number, common)] for calls in ranks]
    return common[1:], ends


def _bins(n_steps: int) -> list[tuple[int, int]]:
    """Ranges of steps, as even as can be, that a picture has room for."""
    n_bins = min(n_steps, _MOST_BINS)
    edges = [round(number * n_steps / n_bins) for number in range(n_bins + 1)]
    return list(pairwise(edges))


def _size(collective: int, dtype: int, size: int, columns: npt.NDArray[Any]) -> dict[str, Any]:
    n_bytes, agree, move, alone = columns
    seconds = float(alone.sum()) / _NS
    return {
        "collective": _at(COLLECTIVES, collective),
        "dtype": _at(DTYPES, dtype),
        "bytes_from": 1 << size if size >= 0 else 0,
        "calls": columns.shape[1],
        "bytes": int(n_bytes.sum()),
        "median_agree_seconds": float(np.median(agree)) / _NS,
        "median_move_seconds": float(np.median(move)) / _NS,
        "bytes_per_second": float(n_bytes.sum()) / seconds if seconds > 0 else 0.0,
    }


def _at(names: Sequence[str], number: int) -> str:
    return names[number] if number < len(names) else str(number)
