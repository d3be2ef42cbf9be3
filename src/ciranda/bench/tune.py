"""`ciranda tune`: measure the costs that choose the algorithms, and store them.

Two ranks time one shot against two shot, with a small and a large tensor, alternately. The difference of two rounds and
one is the cost of a round; the growth of both with the size gives the costs of a byte. On one host these are the costs
of shared memory, between two hosts those of the link. On a busy machine a difference may come out as less than any
machine needs, or as much more; then they measure again, and keep nothing if that does not help.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import ciranda
from ciranda import _core
from ciranda.bench.algorithms import PrescribedSystems, candidates
from ciranda.bench.plan import Case, Plan
from ciranda.bench.ranks import time_in_turns
from ciranda.bench.systems import System
from ciranda.errors import CirandaError, InvalidArgumentError

SMALL, LARGE = 1 << 10, 128 << 10
SECONDS = 0.05  # of measuring, in all
_MOST_CALLS = 1000
_FS, _NS = 1e9, 1e3  # of a microsecond
_TRIES = 20
#: Between what costs are likely. The least: a cache line from another core, a terabyte a second, a message to another
#: host. The most: ranks that sleep and wake each time, 50 MB/s of memory, a link around the world of 8 Mbit/s.
BOUNDS = {
    "call_ns": (10, 1_000_000),
    "shared_round_ns": (10, 500_000),
    "copy_fs": (1_000, 20_000_000),
    "reduce_fs": (1_000, 20_000_000),
    "link_round_ns": (100, 400_000_000),
    "link_fs": (1_000, 1_000_000_000),
}


class TooBusyError(CirandaError):
    """The machine was too busy to be measured."""

    def __init__(self, costs: Mapping[str, int]) -> None:
        told = ", ".join(f"{name} as {cost}" for name, cost in costs.items()) or "those of the other host"
        super().__init__(
            f"in {_TRIES} measurements some costs came out as less than any machine needs, or as far more, at last "
            f"{told}: this machine is too busy. Nothing was kept; try again when it has less to do."
        )


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
    """In whole numbers. On a busy machine a difference of two times may come out below nothing."""
    return {name: max(0, round(value)) for name, value in found.items()}


def unlikely(costs: Mapping[str, int]) -> dict[str, int]:
    """Those that are less than a machine needs, or far more."""
    return {name: cost for name, cost in costs.items() if not BOUNDS[name][0] <= cost <= BOUNDS[name][1]}


def likely(
    measure: Callable[[], dict[str, int]], of_both: Callable[[dict[str, int]], list[dict[str, int]]]
) -> dict[str, int]:
    """Measure until the costs are likely on both ranks.

    Args:
        measure: measures on both.
        of_both: what each of them gives it.

    Raises:
        TooBusyError: on both, if they never are.
    """
    for _ in range(_TRIES):
        costs = measure()
        if not any(of_both(unlikely(costs))):
            return costs
    raise TooBusyError(unlikely(costs))


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


class Measured(NamedTuple):
    """What a rank has measured.

    Attributes:
        kind: of memory, "shm" or "direct".
        costs: empty if they were not found.
        path: the file that they are kept in; empty where another rank wrote it.
        problem: why they were not found.
    """

    kind: str
    costs: dict[str, int]
    path: str = ""
    problem: str = ""


def main() -> Measured:
    """On each of two ranks: measure. The host's first keeps it."""
    ciranda.init()
    by_name = {each.algorithm: each for each in reversed(candidates("allreduce", SMALL))}
    ways = (by_name["one-shot"], by_name["two-shot"])
    kind = ways[0].name.partition(" ")[0]
    systems = PrescribedSystems()
    known = known_costs()

    def measure() -> dict[str, int]:
        lines = _lines(systems.of(ways))
        one, two = (lines[way.title] for way in ways)
        return in_shared_memory(one, two) if kind == "shm" else of_the_link(one, two, known)

    try:
        found = _kept(kind, known, likely(measure, ciranda.allgather_object))
        ciranda.barrier()
    except TooBusyError as error:
        found = Measured(kind, {}, problem=str(error))
    systems.close()
    ciranda.shutdown()
    return found


def _kept(kind: str, known: Mapping[str, int], costs: dict[str, int]) -> Measured:
    if ciranda.local_rank() != 0:
        return Measured(kind, costs)
    path = _core.save_measured_costs({**known, **costs})
    kept = known_costs()  # within bounds
    return Measured(kind, {name: kept[name] for name in costs}, path)


def _lines(systems: Mapping[str, System]) -> dict[str, Line]:
    """Through the first quartile of each system's times, which are the same on all ranks."""
    sizes = (SMALL, LARGE)
    plan = Plan(np=2, seconds=SECONDS / len(sizes) / len(systems), iterations=_MOST_CALLS)
    timed = [time_in_turns(plan, Case("allreduce", "float32", "sum", 2, size // 4), systems) for size in sizes]
    return {
        name: Line.through(*(statistics.quantiles(each[name].times_us, n=4)[0] for each in timed)) for name in systems
    }
