"""The processor time of processes that have called init() and do nothing.

ciranda run --no-prefix -np 2 python benchmarks/idle_cpu.py
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np

import ciranda


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    args = parser.parse_args()
    ciranda.init()
    ciranda.allreduce(np.ones(1000, dtype=np.float32), name="warm_up")
    cpu, wall, switches = _usage()
    time.sleep(args.seconds)  # this is what is measured
    cpu_after, wall_after, switches_after = _usage()
    percent = 100 * (cpu_after - cpu) / (wall_after - wall)
    mine = np.array([[percent, (switches_after - switches) / (wall_after - wall)]])
    for rank, (load, wakes) in enumerate(ciranda.allgather(mine, name="loads")):
        if ciranda.rank() == 0:
            print(
                f"rank {rank}: {load:.4f} % of a core, {wakes:.1f} context switches a second, over {args.seconds:g} s"
            )
    ciranda.shutdown()


def _usage() -> tuple[float, float, int]:
    """Processor seconds of all threads, wall seconds, context switches of all threads."""
    switches = 0
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/status", encoding="ascii") as file:
            switches += sum(int(line.split()[1]) for line in file if "ctxt_switches" in line)
    return time.process_time(), time.monotonic(), switches


if __name__ == "__main__":
    main()
