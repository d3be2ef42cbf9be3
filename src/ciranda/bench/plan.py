"""The plan of a measurement, the meaning of its numbers, and the correct results. Pure.

A *time* is that of one blocking call on all ranks: from the moment when the last rank calls to the moment when the last
rank has returned, by the clock that all processes of one machine share. Ranks start a call at slightly different
moments; counted this way, no rank is charged for another's delay.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

COLLECTIVES = ("allreduce", "broadcast", "allgather")
OPS = ("sum", "average", "min", "max", "product")
DTYPES = ("float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")

DEVICES = ("cpu", "cuda")

Array = npt.NDArray[Any]

_PATTERN_LENGTH = 5


@dataclass(frozen=True)
class Plan:
    """The parameters of one run.

    Attributes:
        collective: of COLLECTIVES.
        dtype: of DTYPES.
        op: of OPS; used by allreduce only.
        np: the number of ranks.
        min_bytes, max_bytes, factor: sizes are min_bytes, min_bytes * factor, ... up to max_bytes.
        seconds: at most this long for each size and system, warm-up apart; but at least MIN_ITERATIONS calls.
        iterations: the most calls for each size and system.
        warm_up: calls before the measured ones.
        peers: other systems, measured alternately with ciranda.
        pin: bind rank r to core r.
        device: of DEVICES; "cuda": tensors of torch on GPUs.
        explain: measure each candidate algorithm, beside its expected time; on GPUs, say which way calls go, and why.
        profile: measure the time of each stage of a call.
    """

    collective: str = "allreduce"
    dtype: str = "float32"
    op: str = "sum"
    np: int = 2
    min_bytes: int = 4
    max_bytes: int = 64 << 20
    factor: int = 4
    seconds: float = 0.5
    iterations: int = 500
    warm_up: int = 5
    peers: tuple[str, ...] = ()
    pin: bool = False
    device: str = "cpu"
    explain: bool = False
    profile: bool = False

    @property
    def systems(self) -> tuple[str, ...]:
        """All that is measured: ciranda first."""
        return ("ciranda", *self.peers)


MIN_ITERATIONS = 5
BLOCKS = 10  # turns that each system gets for one size


@dataclass(frozen=True)
class Case:
    """One size of a plan. ``n_bytes`` is the size of the result, as in nccl-tests; ``count`` is one rank's elements."""

    collective: str
    dtype: str
    op: str
    np: int
    count: int

    @property
    def n_bytes(self) -> int:
        """Bytes of the result."""
        ranks = self.np if self.collective == "allgather" else 1
        return self.count * ranks * np.dtype(self.dtype).itemsize

    @property
    def name(self) -> str:
        """The tensor's name: the same on all ranks and for all calls of this case."""
        return f"bench.{self.collective}.{self.dtype}.{self.op}.{self.count}"


def cases(plan: Plan) -> Iterator[Case]:
    """The sizes of a plan, rising. Sizes below one element a rank count as one element."""
    per_element = np.dtype(plan.dtype).itemsize * (plan.np if plan.collective == "allgather" else 1)
    n_bytes, last = plan.min_bytes, 0
    while n_bytes <= plan.max_bytes:
        count = max(1, n_bytes // per_element)
        if count != last:
            yield Case(plan.collective, plan.dtype, plan.op, plan.np, count)
        n_bytes, last = n_bytes * plan.factor, count


def format_size(n_bytes: int) -> str:
    """1024 -> "1 KiB"; what is not a whole number of units has one decimal."""
    for unit, value in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n_bytes >= value:
            return f"{n_bytes / value:.0f} {unit}" if n_bytes % value == 0 else f"{n_bytes / value:.1f} {unit}"
    return f"{n_bytes} B"


# -- results -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """A candidate algorithm for a call.

    Attributes:
        name: as "shm two-shot".
        segment_bytes: the bytes that it moves at a time; 0 for all at once.
        expected_us: the cost model's time; None without a choice.
        taken_us: the time of calls of this job that tried it; None without such calls.
        is_chosen: whether such calls use it now.
        is_in_place: whether it is the form of `name` for tensors in memory that all ranks have mapped.
    """

    name: str
    segment_bytes: int
    expected_us: float | None
    taken_us: float | None
    is_chosen: bool
    is_in_place: bool = False

    @property
    def is_a_choice(self) -> bool:
        """Whether the settings have a word for it: there are others beside it."""
        return self.expected_us is not None

    @property
    def algorithm(self) -> str:
        """As the setting calls it: "two-shot" of "shm two-shot"."""
        return self.name.rpartition(" ")[2]

    @property
    def title(self) -> str:
        """Unlike that of any other candidate: "shm two-shot, 256 KiB"."""
        if self.is_in_place:
            return f"{self.name}, in place"
        return f"{self.name}, {format_size(self.segment_bytes)}" if self.segment_bytes else self.name


@dataclass(frozen=True)
class Measurement:
    """One system at one size. Times in microseconds, bandwidths in GB/s (10^9 bytes) of the median."""

    median_us: float
    min_us: float
    algbw: float
    busbw: float
    n_wrong: int
    iterations: int


@dataclass(frozen=True)
class Row:
    """All systems at one size. `stages`: the median microseconds of each, if they were asked for.

    `agreement`: how the ranks agree on such a call, in words; empty on ranks other than 0, and if it was not asked for.
    `way`, `why`: by which way tensors on GPUs go, and the reason; empty if that was not asked for.
    """

    n_bytes: int
    count: int
    dtype: str
    op: str
    systems: dict[str, Measurement]
    candidates: tuple[Candidate, ...] = ()
    stages: dict[str, float] = field(default_factory=dict)
    agreement: str = ""
    way: str = ""
    why: str = ""

    @property
    def peers(self) -> list[str]:
        """All but ciranda; none where what was measured is its own algorithms."""
        return [name for name in self.systems if name != "ciranda"] if "ciranda" in self.systems else []

    def ratio(self, peer: str) -> float:
        """How many times faster ciranda is than the peer: medians of the same run."""
        return self.systems[peer].median_us / self.systems["ciranda"].median_us


@dataclass(frozen=True)
class Results:
    """A whole run, as written by --json."""

    meta: dict[str, Any]
    rows: list[Row] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """For json.dump; with the ratios that the table shows."""
        rows = [{**asdict(row), "ratios": {peer: row.ratio(peer) for peer in row.peers}} for row in self.rows]
        return {"meta": self.meta, "rows": rows}


def call_times_us(starts_ns: Array, ends_ns: Array) -> list[float]:
    """Times of the calls, from integer arrays (rank, call) of the moments when each rank called and had returned."""
    times: list[float] = ((ends_ns.max(axis=0) - starts_ns.max(axis=0)) / 1e3).tolist()
    return times


def summarise(case: Case, times_us: Sequence[float], n_wrong: int) -> Measurement:
    """Median, minimum and bandwidths of the calls' times."""
    median = statistics.median(times_us)
    algbw = case.n_bytes / median / 1e3
    return Measurement(median, min(times_us), algbw, algbw * bus_factor(case), n_wrong, len(times_us))


def bus_factor(case: Case) -> float:
    """From algorithm bandwidth to what each rank's link carries, as defined by nccl-tests."""
    if case.collective == "broadcast":
        return 1.0
    share = (case.np - 1) / case.np
    return 2 * share if case.collective == "allreduce" else share


# -- right answers -----------------------------------------------------------------------------------------------------


def pattern(case: Case, rank: int) -> Array:
    """This rank's input for checks of the result: small whole numbers that differ by position and rank."""
    lowest, span = (1, 2) if case.op == "product" else (0, 5)
    period = (np.arange(_PATTERN_LENGTH) * 2 + rank) % _PATTERN_LENGTH % span + lowest
    return np.resize(period.astype(case.dtype), case.count)


def expected(case: Case) -> Array:
    """The right result for `pattern`."""
    if case.collective == "broadcast":
        return pattern(case, 0)
    if case.collective == "allgather":
        return np.concatenate([pattern(case, rank) for rank in range(case.np)])
    short = Case(case.collective, case.dtype, case.op, case.np, min(case.count, _PATTERN_LENGTH))
    inputs = np.stack([pattern(short, rank) for rank in range(case.np)])
    reductions: dict[str, Callable[..., Any]] = {
        "sum": np.sum,
        "average": np.mean,
        "min": np.min,
        "max": np.max,
        "product": np.prod,
    }
    exact = reductions[case.op](inputs.astype(np.float64), axis=0)
    if not np.issubdtype(np.dtype(case.dtype), np.floating):
        exact = np.trunc(exact)
    return np.resize(exact.astype(case.dtype), case.count)


def count_wrong(case: Case, result: Array) -> int:
    """How many elements of a result for `pattern` are wrong. Averages may differ by one rounding."""
    right = expected(case)
    if result.shape != right.shape:
        return int(right.size)
    if case.op == "average" and case.collective == "allreduce":
        is_floating = np.issubdtype(np.dtype(case.dtype), np.floating)
        tolerance = 2 * float(np.finfo(case.dtype).eps) if is_floating else 0.0
        return int(np.sum(~np.isclose(result, right, rtol=tolerance, atol=0)))
    return int(np.sum(result != right))
