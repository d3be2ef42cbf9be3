"""`ciranda tune`: measure the costs that choose the algorithms, and store them.

Two ranks time one shot against two shot, with a small and a large tensor, alternately. The difference of two rounds and
one is the cost of a round; the growth of both with the size gives the costs of a byte. On one host these are the costs
of shared memory, between two hosts those of the link.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import ciranda
from ciranda import _core
from ciranda.bench.algorithms import PrescribedSystems, candidates
from ciranda.bench.plan import Case, Plan
from ciranda.bench.ranks import time_in_turns
from ciranda.bench.systems import System
from ciranda.errors import InvalidArgumentError

SMALL, LARGE = 1 << 10, 128 << 10
SECONDS = 0.05  # of measuring, in all
_MOST_CALLS = 1000
_FS, _NS = 1e9, 1e3  # of a microsecond


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
    """Costs of shared memory from the times of one shot and two shot on two ranks; see cpp/backend/algorithms.cc.

    one = call + round + bytes (copy + 2 reduce), two = call + 2 rounds + bytes (3/2 copy + reduce).
    """
    of_round = max(0.0, two.fixed_us - one.fixed_us)
    reduce = max(0.0, (one.us_per_byte * 3 / 2 - two.us_per_byte) / 2)
    copy = max(0.0, one.us_per_byte - 2 * reduce)
    return _costs(
        call_ns=(one.fixed_us - of_round) * _NS,
        shared_round_ns=of_round * _NS,
        copy_fs=copy * _FS,
        reduce_fs=reduce * _FS,
    )


def of_the_link(one: Line, two: Line, known: Mapping[str, int]) -> dict[str, int]:
    """Costs of the link between two hosts; those of memory are known.

    one = call + round + message + bytes ..., two = call + 2 (round + message) + bytes (link + reduce).
    """
    of_round = max(0.0, two.fixed_us - one.fixed_us)
    return _costs(
        link_round_ns=of_round * _NS - known["message_ns"],
        link_fs=two.us_per_byte * _FS - known["reduce_fs"],
    )


def _costs(**found: float) -> dict[str, int]:
    """In whole numbers. On a busy machine a difference of two times may come out below nothing, which no cost is."""
    return {name: max(0, round(value)) for name, value in found.items()}


def defaults() -> dict[str, int]:
    """The assumed costs, without a measurement."""
    return {row["name"]: row["default"] for row in _core.host_costs_table()}


def known_costs() -> dict[str, int]:
    """The costs in use on this host: measured before, or assumed."""
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
    found = {each.algorithm: each for each in reversed(candidates("allreduce", SMALL))}
    ways = (found["one-shot"], found["two-shot"])
    kind = ways[0].name.partition(" ")[0]
    systems = PrescribedSystems()
    lines = _lines(systems.of(ways))
    one, two = (lines[way.title] for way in ways)
    known = known_costs()
    mine = in_shared_memory(one, two) if kind == "shm" else of_the_link(one, two, known)
    path = ""
    if ciranda.local_rank() == 0:
        path = _core.save_measured_costs({**known, **mine})
        kept = known_costs()  # within bounds
        mine = {name: kept[name] for name in mine}
    ciranda.barrier()
    systems.close()
    ciranda.shutdown()
    return kind, mine, path


def _lines(systems: Mapping[str, System]) -> dict[str, Line]:
    """Through the first quartile of each system's times, which are the same on all ranks."""
    sizes = (SMALL, LARGE)
    plan = Plan(np=2, seconds=SECONDS / len(sizes) / len(systems), iterations=_MOST_CALLS)
    timed = [time_in_turns(plan, Case("allreduce", "float32", "sum", 2, size // 4), systems) for size in sizes]
    return {
        name: Line.through(*(statistics.quantiles(each[name].times_us, n=4)[0] for each in timed)) for name in systems
    }
