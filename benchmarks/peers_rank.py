"""What each rank does for peers.py, which starts it."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from distances import FAR, NEAR, UNKNOWN, Distances

import ciranda
from ciranda.bench.plan import BLOCKS, Array, Case, Plan
from ciranda.bench.ranks import Timed, time_in_turns
from ciranda.bench.systems import Call, Ciranda, Gloo, System

_LEAST_TIMES = 10  # of each system, near and far, where both are waited for
_RATE_BYTES = (256 << 10, 4 << 20, 256 << 20)  # a core's own cache, the shared one, memory


class Mpi:
    """An MPI through mpi4py's buffer interface: no pickling, and no thread but this one."""

    def __init__(self) -> None:
        import mpi4py

        mpi4py.rc.thread_level = "single"
        from mpi4py import MPI

        self._mpi, self._world = MPI, MPI.COMM_WORLD
        assert (self._world.rank, self._world.size) == (ciranda.rank(), ciranda.size())
        self.version = MPI.Get_library_version().split(",")[0].splitlines()[0].strip()

    def bind(self, case: Case, buffer: Array) -> Call:
        """See System."""
        world = self._world
        if case.collective == "broadcast":
            return lambda: world.Bcast(buffer, 0) or buffer
        if case.collective == "allgather":
            output = np.empty(case.count * case.np, dtype=case.dtype)
            return lambda: world.Allgather(buffer, output) or output
        return lambda: world.Allreduce(self._mpi.IN_PLACE, buffer, self._mpi.SUM) or buffer

    def close(self) -> None:
        """MPI ends with the process."""


def main() -> None:
    what = json.loads(sys.argv[1])
    identify()
    ciranda.init()
    rank, size = ciranda.rank(), ciranda.size()
    if what["pin"]:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    if what["dtype"] == "bfloat16":
        import ml_dtypes  # noqa: F401  # tells NumPy the name
    folder = what["folder"]
    systems: dict[str, System] = {"ciranda": Ciranda()}
    versions = {"ciranda": ciranda.__version__}
    for name in what["peers"]:
        peer = systems[name] = Gloo(rank, size, folder) if name == "gloo" else Mpi()
        versions[name] = peer.version if isinstance(peer, Mpi) else f"torch {torch_version()}"
    started = time.monotonic()
    plan = Plan(np=size, seconds=what["seconds"], iterations=what["iterations"])
    distances = Distances(folder)
    rows = [
        row
        for collective in what["collectives"]
        for case in cases(collective, what["dtype"], what["sizes"], size)
        for row in measure(plan, case, systems, distances, what["until_both"])
    ]
    rates = {n_bytes: rewrite_rate(n_bytes, size) for n_bytes in _RATE_BYTES}
    used = ciranda.allreduce(np.array([time.process_time()]), op=ciranda.Sum)[0]
    found = {
        "versions": versions,
        "rows": rows,
        "rewrite_gb_per_s": rates,
        "wall_seconds": time.monotonic() - started,
        "used_seconds": float(used),
    }
    if rank == 0:
        (Path(folder) / "found.json").write_text(json.dumps(found))
    ciranda.barrier()
    for system in systems.values():
        system.close()
    ciranda.shutdown()


def identify() -> None:
    """Tell Ciranda which rank this is, where mpiexec knows."""
    for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"):
        if name in os.environ and "CIRANDA_RANK" not in os.environ:
            os.environ["CIRANDA_RANK"] = os.environ[name]
    size = os.environ["CIRANDA_SIZE"]
    alike = {"LOCAL_RANK": os.environ["CIRANDA_RANK"], "LOCAL_SIZE": size, "CROSS_RANK": "0", "CROSS_SIZE": "1"}
    os.environ.update({f"CIRANDA_{name}": value for name, value in alike.items()})


def torch_version() -> str:
    import torch

    return str(torch.__version__)


def cases(collective: str, dtype: str, sizes: list[int], n: int) -> list[Case]:
    per_element = np.dtype(dtype).itemsize * (n if collective == "allgather" else 1)
    return [Case(collective, dtype, "sum", n, max(1, size // per_element)) for size in sizes]


def measure(
    plan: Plan, case: Case, systems: dict[str, System], distances: Distances, until_both: float
) -> list[dict[str, Any]]:
    """Check and time every system, in turns, and the floor between them: a row for each distance of the cores."""
    floors: list[float] = []
    result = np.zeros(case.n_bytes // np.dtype(case.dtype).itemsize, dtype=case.dtype)

    def time_floor(iterations: dict[str, int]) -> None:
        floors.extend(rewrite_times_us(result, n_calls=max(3, min(20, iterations["ciranda"] // BLOCKS))))

    timed = time_in_turns(plan, case, systems, time_floor, label_turn=distances.look)
    began = time.monotonic()
    while agreed(not are_both_met(timed) and time.monotonic() < began + until_both):
        for name, more in time_in_turns(plan, case, systems, label_turn=distances.look).items():
            timed[name].times_us += more.times_us
            timed[name].labels += more.labels
            timed[name].n_wrong += more.n_wrong
    row = {"collective": case.collective, "n_bytes": case.n_bytes, "floor_us": statistics.median(floors)}
    return [{**row, "distance": distance, "systems": found} for distance, found in by_distance(timed).items()]


def agreed(goes_on: bool) -> bool:
    """What rank 0 says."""
    return bool(ciranda.broadcast(np.array([goes_on]), 0, name="peers.agreed")[0])


def are_both_met(timed: dict[str, Timed]) -> bool:
    """Whether each system was timed often enough near and far."""
    return all(each.labels.count(distance) >= _LEAST_TIMES for each in timed.values() for distance in (NEAR, FAR))


def by_distance(timed: dict[str, Timed]) -> dict[str, dict[str, Any]]:
    """What there is of each system at each distance that all were timed at; or of all times, where that is none."""

    def systems_at(distance: str) -> dict[str, Any]:
        times = {
            name: [us for us, label in zip(each.times_us, each.labels, strict=True) if label == distance]
            for name, each in timed.items()
        }
        return {name: described(timed[name], of) for name, of in times.items()} if all(times.values()) else {}

    found = {distance: systems for distance in (NEAR, FAR) if (systems := systems_at(distance))}
    return found or {UNKNOWN: {name: described(each, each.times_us) for name, each in timed.items()}}


def described(timed: Timed, times_us: list[float]) -> dict[str, Any]:
    return {**spread(times_us), "n_wrong": timed.n_wrong, "iterations": len(times_us)}


def spread(times_us: list[float]) -> dict[str, float]:
    """Median, quartiles and minimum."""
    low, median, high = np.percentile(times_us, [25, 50, 75]).tolist()
    return {"median_us": median, "low_us": low, "high_us": high, "min_us": min(times_us)}


def rewrite_times_us(buffer: Array, n_calls: int) -> list[float]:
    """All ranks at once read and write all of a buffer of their own: the times of this rank's calls."""
    clock: Callable[[], int] = time.perf_counter_ns
    times = []
    words = buffer.view(np.uint16)  # NumPy is slow with 16-bit floats
    for _ in range(n_calls):
        ciranda.barrier()
        start = clock()
        np.invert(words, out=words)
        times.append((clock() - start) / 1e3)
    return times


def rewrite_rate(n_bytes: int, n_ranks: int) -> float:
    """GB/s that all ranks together read and write so."""
    buffer = np.zeros(n_bytes // 4, dtype=np.float32)
    rewrite_times_us(buffer, 3)
    mine = np.array([statistics.median(rewrite_times_us(buffer, 10))])
    return float(2 * n_ranks * n_bytes / ciranda.allreduce(mine, op=ciranda.Max)[0] / 1e3)


if __name__ == "__main__":
    main()
