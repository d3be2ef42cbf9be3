"""`ciranda tune`: measure what algorithms are chosen by, and keep it.

Two ranks time one shot against two shot, a small and a large tensor, in turns. What two rounds cost more than one is
the cost of a round; how both grow with the size gives the costs of a byte. On one host that is shared memory, between
two hosts the link.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import ciranda
from ciranda import _core
from ciranda.bench.algorithms import PrescribedSystems, candidates
from ciranda.bench.plan import Case
from ciranda.errors import InvalidArgumentError

SMALL, LARGE = 1 << 10, 128 << 10
SECONDS = 0.05  # of measuring, in all
_TURNS = 5
_FEWEST_CALLS = 3
_FS, _NS = 1e9, 1e3  # of a microsecond

Key = tuple[str, int]  # algorithm, bytes


@dataclass(frozen=True)
class Line:
    """Microseconds of a call without bytes, and of each byte."""

    fixed_us: float
    us_per_byte: float

    @classmethod
    def through(cls, small_us: float, large_us: float) -> Line:
        """The line through the times of SMALL and LARGE."""
        slope = max(0.0, (large_us - small_us) / (LARGE - SMALL))
        return cls(small_us - slope * SMALL, slope)


def in_shared_memory(one: Line, two: Line) -> dict[str, int]:
    """Costs of shared memory from what one shot and two shot took two ranks; see cpp/backend/cost_model.cc.

    one = call + round + bytes (copy + 2 reduce), two = call + 2 rounds + bytes (3/2 copy + reduce).
    """
    of_round = max(0.0, two.fixed_us - one.fixed_us)
    reduce = max(0.0, (one.us_per_byte * 3 / 2 - two.us_per_byte) / 2)
    copy = max(0.0, one.us_per_byte - 2 * reduce)
    return {
        "call_ns": round((one.fixed_us - of_round) * _NS),
        "shared_round_ns": round(of_round * _NS),
        "copy_fs": round(copy * _FS),
        "reduce_fs": round(reduce * _FS),
    }


def of_the_link(one: Line, two: Line, known: Mapping[str, int]) -> dict[str, int]:
    """Costs of the link between two hosts; those of memory are known.

    one = call + round + message + bytes ..., two = call + 2 (round + message) + bytes (link + reduce).
    """
    of_round = max(0.0, two.fixed_us - one.fixed_us)
    return {
        "link_round_ns": round(of_round * _NS) - known["message_ns"],
        "link_fs": round(two.us_per_byte * _FS) - known["reduce_fs"],
    }


def defaults() -> dict[str, int]:
    """What is assumed where nothing was measured."""
    return {row["name"]: row["default"] for row in _core.host_costs_table()}


def known_costs() -> dict[str, int]:
    """What is in use on this host: measured before, or assumed."""
    try:
        measured = _core.measured_costs()
    except InvalidArgumentError:  # a broken file, which is to be replaced
        measured = None
    return {**defaults(), **(measured or {})}


def main() -> tuple[str, dict[str, int], str]:
    """On each of two ranks: measure. The host's first keeps it.

    Returns the kind of memory measured, "shm" or "direct"; the costs; and the file, empty where another rank wrote it.
    """
    ciranda.init()
    found = candidates("allreduce", SMALL)
    kind = found[0].name.partition(" ")[0]
    systems = PrescribedSystems()
    calls = {
        (each.algorithm, n_bytes): systems.of(found)[each.name].bind(
            Case("allreduce", "float32", "sum", 2, n_bytes // 4), np.zeros(n_bytes // 4, np.float32)
        )
        for each in found
        if each.algorithm != "by-hosts"
        for n_bytes in (SMALL, LARGE)
    }
    times = _in_turns(calls)
    one, two = (
        Line.through(*(statistics.quantiles(times[algorithm, n], n=4)[0] for n in (SMALL, LARGE)))
        for algorithm in ("one-shot", "two-shot")
    )
    known = known_costs()
    mine = in_shared_memory(one, two) if kind == "shm" else of_the_link(one, two, known)
    costs = {**known, **mine}
    path = _core.save_measured_costs(costs) if ciranda.local_rank() == 0 else ""
    ciranda.barrier()
    systems.close()
    ciranda.shutdown()
    return kind, mine, path


def _in_turns(calls: Mapping[Key, Callable[[], Any]]) -> dict[Key, list[float]]:
    """What calls took, in microseconds: the longest of all ranks for each, and as many on all ranks."""
    took: dict[Key, list[float]] = {key: [] for key in calls}
    for call in calls.values():
        call()
    for _ in range(_TURNS):
        for key, call in calls.items():
            spent = sum(took[key])
            fitting = SECONDS * 1e6 / len(calls) / _TURNS / statistics.median(took[key]) if spent else 0
            took[key] += _times_us(call, min(1000, max(_FEWEST_CALLS, int(fitting))))
    return took


def _times_us(call: Callable[[], Any], n_calls: int) -> list[float]:
    mine = []
    for _ in range(n_calls):
        begin = time.perf_counter_ns()
        call()
        mine.append(time.perf_counter_ns() - begin)
    everyone = ciranda.allgather(np.array([mine], dtype=np.int64), name="tune.times")
    longest: list[float] = (everyone.max(axis=0) / 1e3).tolist()
    return longest
