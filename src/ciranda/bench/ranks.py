"""The ranks' part of a benchmark. Runs in processes that `ciranda.launch.run` has started.

Systems alternate, a few calls each, so that a disturbance of the machine affects all of them. The buffer is rewritten
before every call, because otherwise each rank would find its half of it in its own cache. The median and the minimum
are kept. benchmarks/README.md gives the reasons.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import ciranda
from ciranda import _core
from ciranda._basics import engine
from ciranda.bench import stages, table, ways
from ciranda.bench.algorithms import PrescribedSystems, candidates
from ciranda.bench.plan import (
    BLOCKS,
    MIN_ITERATIONS,
    Array,
    Case,
    Measurement,
    Plan,
    Row,
    call_times_us,
    cases,
    count_wrong,
    pattern,
    summarise,
)
from ciranda.bench.systems import PEERS, Call, Ciranda, System
from ciranda.bench.ways import Told
from ciranda.launch.page import read_bytes

_MOST_TRIED = 200  # calls; see cpp/backend/online_autotuner.hpp
_MOST_UNREAD = 4000  # calls; what a recording has room for, and more


def main(plan: Plan, folder: str) -> tuple[list[Row], float]:
    """Measure the whole plan; rank 0 prints the rows as they come.

    Returns the rows, and the processor seconds that this process used. ``folder`` is an empty one that all ranks see.
    """
    ciranda.init()
    rank = ciranda.rank()
    if plan.pin:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[ciranda.local_rank() % len(cores)]})
    systems: dict[str, System] = {"ciranda": on_gpu() if plan.device == "cuda" else Ciranda()}
    for peer in plan.peers:
        systems[peer] = PEERS[peer](rank, ciranda.size(), folder)
    prescribed = PrescribedSystems()
    told = tell_of_gpus() if plan.explain and plan.device == "cuda" else []
    rows = []
    for case in cases(plan):
        if plan.explain and plan.device == "cuda":
            row, show = explain_way(plan, case, systems["ciranda"], told), table.way
        elif plan.explain:
            row, show = explain(plan, case, prescribed), table.explanation
        elif plan.profile:
            row, show = profile(plan, case), table.profile
        else:
            row, show = measure(plan, case, systems), table.line
        rows.append(row)
        if rank == 0:
            print(show(row), flush=True)
    if plan.explain and plan.device == "cpu" and rank == 0:
        pairs = {other: engine().peer(other)["pair"] for other in range(ciranda.size())}
        print(table.memory(pairs, _core.staging_copy()), flush=True)
    ciranda.barrier()
    prescribed.close()
    for system in systems.values():
        system.close()
    ciranda.shutdown()
    return rows, time.process_time()


def on_gpu() -> System:
    """Ciranda, and a GPU for this rank."""
    from ciranda.bench.on_gpu import CirandaOnGpu, choose_gpu  # with torch

    choose_gpu(ciranda.local_rank())
    return CirandaOnGpu()


def buffer_on_gpu(case: Case) -> Any:
    """What stands for an array there."""
    from ciranda.bench.on_gpu import OnGpu  # with torch

    return OnGpu.zeros(case)


def measure(plan: Plan, case: Case, systems: Mapping[str, System]) -> Row:
    """Check and time every system on one size."""
    timed = time_in_turns(plan, case, systems, buffer=buffer_on_gpu(case) if plan.device == "cuda" else None)
    measurements: dict[str, Measurement] = {
        name: summarise(case, found.times_us, found.n_wrong) for name, found in timed.items()
    }
    return Row(case.n_bytes, case.count, case.dtype, case.op, measurements)


def explain(plan: Plan, case: Case, prescribed: PrescribedSystems) -> Row:
    """As measure(), with each candidate algorithm as a system."""
    try_all(case)
    found = candidates(case.collective, case.n_bytes)
    row = measure(plan, case, prescribed.of(each for each in found if not each.is_in_place))
    for title, system in prescribed.of(each for each in found if each.is_in_place).items():
        timed = time_in_turns(plan, case, {title: system}, buffer=system.shared_array(case))[title]
        row.systems[title] = summarise(case, timed.times_us, timed.n_wrong)
    n_bytes = case.count * np.dtype(case.dtype).itemsize
    agreement = engine().agreement(_core.COLLECTIVES[case.collective], n_bytes)
    return replace(row, candidates=found, agreement=agreement)


def tell_of_gpus() -> list[Told]:
    """What each rank tells of its GPU. A collective."""
    from ciranda.bench.on_gpu import number_of_gpu  # with torch

    gpu, _, no_kernels = _core.examine_devices()[number_of_gpu()]
    settings = _core.effective_settings()
    told: list[Told] = ciranda.allgather_object(Told(gpu, no_kernels, settings), name="bench.told")
    return told


def explain_way(plan: Plan, case: Case, system: System, told: Sequence[Told]) -> Row:
    """As measure(), with the way by which the calls go, and the reason."""
    row = measure(plan, case, {"ciranda": system})
    call = system.bind(case, buffer_on_gpu(case))

    def calls_by_algorithm() -> dict[str, int]:
        return {name: each["calls"] for name, each in read_bytes(engine().counter_page())["algorithms"].items()}

    before = calls_by_algorithm()
    call()
    algorithm = ways.algorithm_of(before, calls_by_algorithm())
    return replace(row, way=ways.title_of(algorithm), why=ways.why(algorithm, told))


def try_all(case: Case) -> None:
    """Make calls until Ciranda's trials of this size are complete, if it has any."""
    settings = _core.effective_settings()
    has_choice = sum(not each.is_in_place for each in candidates(case.collective, case.n_bytes)) > 1
    tries = settings["CIRANDA_AUTOTUNE"] and case.collective == "allreduce"
    if not (tries and has_choice) or settings["CIRANDA_ALGORITHM"]:
        return
    call = Ciranda().bind(case, np.zeros(case.count, dtype=case.dtype))
    for _ in range(_MOST_TRIED):
        call()
        if any(each.taken_us is not None for each in candidates(case.collective, case.n_bytes)):
            return


def profile(plan: Plan, case: Case) -> Row:
    """Check Ciranda on one size, and find how long each stage of its calls takes."""
    buffer = np.zeros(case.count, dtype=case.dtype)
    call = Ciranda().bind(case, buffer)
    n_wrong = check(case, call, buffer)
    n_calls = choose_iterations(plan, call, buffer)
    starts: list[int] = []
    ends: list[int] = []
    passed: list[list[int]] = []
    recording = engine().record()
    gc.disable()
    for n_made in range(0, n_calls, _MOST_UNREAD):
        time_calls(call, buffer, min(_MOST_UNREAD, n_calls - n_made), starts, ends)
        passed += [stages.of_blocking_call(at_ns) for *_, at_ns in recording.read()]
    gc.enable()
    recording.stop()
    moments = np.array([[starts, *zip(*passed, strict=True), ends]], dtype=np.int64)
    everyone = ciranda.allgather(moments, name=f"bench.moments.{case.name}")
    found = summarise(case, call_times_us(everyone[:, 0], everyone[:, -1]), n_wrong)
    row = Row(case.n_bytes, case.count, case.dtype, case.op, {"ciranda": found})
    return replace(row, stages=stages.medians_us(stages.durations_ns(everyone)))


@dataclass
class Timed:
    """A system's calls: microseconds of each, the same on all ranks, and how many elements were wrong in the check.

    `labels`: what there was to say of the turn that each call belongs to.
    """

    times_us: list[float]
    n_wrong: int
    labels: list[str] = field(default_factory=list)


def time_in_turns(
    plan: Plan,
    case: Case,
    systems: Mapping[str, System],
    after_block: Callable[[dict[str, int]], None] | None = None,
    buffer: Array | None = None,
    label_turn: Callable[[], str] | None = None,
) -> dict[str, Timed]:
    """Check every system, and time them alternately on one buffer: a disturbance then affects all of them.

    Args:
        after_block: called after each turn of all, with how many calls each system is to make altogether.
        buffer: what all of them combine; by default memory of this process's own.
        label_turn: called on all ranks after each turn of a system, to say something about it.
    """
    if buffer is None:
        buffer = np.zeros(case.count, dtype=case.dtype)
    calls = {name: system.bind(case, buffer) for name, system in systems.items()}
    n_wrong = {name: check(case, call, buffer) for name, call in calls.items()}
    iterations = {name: choose_iterations(plan, call, buffer) for name, call in calls.items()}
    starts: dict[str, list[int]] = {name: [] for name in calls}
    ends: dict[str, list[int]] = {name: [] for name in calls}
    labels: dict[str, list[str]] = {name: [] for name in calls}
    gc.disable()
    for block in range(BLOCKS):
        for name in list(calls) if block % 2 == 0 else list(calls)[::-1]:
            n_calls = iterations[name] * (block + 1) // BLOCKS - iterations[name] * block // BLOCKS
            if n_calls > 0:
                calls[name]()  # the first call after another system's turn finds that one's traces
            time_calls(calls[name], buffer, n_calls, starts[name], ends[name])
            if label_turn is not None:
                labels[name] += [label_turn()] * n_calls
        if after_block is not None:
            after_block(iterations)
    gc.enable()
    return {
        name: Timed(gather_times(case, name, starts[name], ends[name]), n_wrong[name], labels[name]) for name in calls
    }


def check(case: Case, call: Call, buffer: Array) -> int:
    """The number of wrong elements on all ranks together."""
    buffer[:] = pattern(case, ciranda.rank())
    mine = np.array([count_wrong(case, np.asarray(call()))], dtype=np.int64)
    return int(ciranda.allreduce(mine, name="bench.wrong", op=ciranda.Sum)[0])


def choose_iterations(plan: Plan, call: Call, buffer: Array) -> int:
    """Warm up, and agree on how many calls fit into the time there is."""
    took_ns = []
    for _ in range(max(1, plan.warm_up)):
        buffer.fill(0)
        start = time.perf_counter_ns()
        call()
        took_ns.append(time.perf_counter_ns() - start)
    fitting = int(plan.seconds * 1e9 / max(1, min(took_ns)))
    mine = np.array([min(plan.iterations, max(MIN_ITERATIONS, fitting))], dtype=np.int64)
    return int(ciranda.broadcast(mine, 0, name="bench.iterations")[0])


def time_calls(call: Call, buffer: Array, n_calls: int, starts: list[int], ends: list[int]) -> None:
    """Append when each call began and had returned, in nanoseconds of the machine's monotonic clock."""
    clock: Callable[[], int] = time.perf_counter_ns
    for _ in range(n_calls):
        buffer.fill(1)
        start = clock()
        call()
        end = clock()
        starts.append(start)
        ends.append(end)


def gather_times(case: Case, system: str, starts: list[int], ends: list[int]) -> list[float]:
    """The calls' times, the same on all ranks."""
    mine = np.array([[starts, ends]], dtype=np.int64)
    everyone = ciranda.allgather(mine, name=f"bench.times.{case.name}.{system}")
    return call_times_us(everyone[:, 0], everyone[:, 1])
