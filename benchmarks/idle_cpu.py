"""The processor time of processes that have called init() and do nothing, and what that costs other work of theirs.

ciranda run --no-prefix -np 2 python benchmarks/idle_cpu.py
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import numpy as np

import ciranda


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--repetitions", type=int, default=20, help="of the work, with Ciranda and without, in turns")
    args = parser.parse_args()
    inside, outside = _work_in_turns(args.repetitions)
    ciranda.init()
    ciranda.allreduce(np.ones(1000, dtype=np.float32), name="warm_up")
    cpu, wall, switches = _usage()
    time.sleep(args.seconds)  # this is what is measured
    cpu_after, wall_after, switches_after = _usage()
    percent = 100 * (cpu_after - cpu) / (wall_after - wall)
    mine = np.array([[percent, (switches_after - switches) / (wall_after - wall), inside, outside]])
    for rank, (load, wakes, with_it, without) in enumerate(ciranda.allgather(mine, name="loads")):
        if ciranda.rank() == 0:
            print(
                f"rank {rank}: {load:.4f} % of a core, {wakes:.1f} context switches a second, over {args.seconds:g} s; "
                f"work of {without:.1f} ms takes {with_it / without:.4f} times as long with Ciranda"
            )
    ciranda.shutdown()


def _work_in_turns(repetitions: int) -> tuple[float, float]:
    """Milliseconds of some work in a process that has joined, and in one that has not: medians."""
    numbers = np.arange(2_000_000, dtype=np.float64)
    inside, outside = [], []
    for _ in range(repetitions):
        outside.append(_work(numbers))
        ciranda.init()
        inside.append(_work(numbers))
        ciranda.shutdown()
    return statistics.median(inside), statistics.median(outside)


def _work(numbers: np.ndarray) -> float:
    begin = time.perf_counter()
    for _ in range(5):
        np.sqrt(numbers).sum()
    return (time.perf_counter() - begin) * 1e3


def _usage() -> tuple[float, float, int]:
    """Processor seconds of all threads, wall seconds, context switches of all threads."""
    switches = 0
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/status", encoding="ascii") as file:
            switches += sum(int(line.split()[1]) for line in file if "ctxt_switches" in line)
    return time.process_time(), time.monotonic(), switches


if __name__ == "__main__":
    main()
