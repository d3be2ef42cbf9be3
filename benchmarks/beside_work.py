"""Allreduces beside other work: as many busy processes as there are cores; and gloo in the same runs, in turns.

    ciranda run --no-prefix -np 2 python benchmarks/beside_work.py

Means, as a call is slow when its ranks are not on a core at the same time, and the calls between are as fast as ever. A
line for each size of both means and their ratio, which `make guard` reads.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
import torch.distributed as dist

import ciranda
from ciranda._sizes import parse_size
from ciranda.bench.plan import format_size

CALLS = 10  # in a row, before the ranks agree whether to go on


@contextmanager
def other_work(n_processes: int) -> Iterator[None]:
    """Processes none of which ever waits for anything."""
    with ExitStack() as stack:
        for _ in range(n_processes):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(process.kill)
        yield


def go_on(is_over: bool) -> bool:
    """Whether rank 0 has time left."""
    flag = torch.tensor([0.0 if is_over else 1.0])
    dist.broadcast(flag, 0)
    return bool(flag[0])


def turn(call: Callable[[], object], seconds: float) -> list[float]:
    """Microseconds of each call."""
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while go_on(time.perf_counter() > end):
        for _ in range(CALLS):
            began = time.perf_counter()
            call()
            taken.append((time.perf_counter() - began) * 1e6)
    return taken


def measure(n_bytes: int, turns: int, seconds: float) -> tuple[float, float]:
    """The mean times of both, over all turns."""
    values = np.zeros(n_bytes // 4, dtype=np.float32)
    tensor = torch.zeros(n_bytes // 4)
    calls: list[Callable[[], object]] = [
        lambda: ciranda.allreduce_(values, op=ciranda.Sum, name=f"beside work {n_bytes}"),
        lambda: dist.all_reduce(tensor),
    ]
    taken: list[list[float]] = [[], []]
    for _ in range(turns):
        for call, of_call in zip(calls, taken, strict=True):
            of_call.extend(turn(call, seconds))
    ours, theirs = (sum(each) / len(each) for each in taken)
    return ours, theirs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="64,8K,1M")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="that are busy")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each turn")
    args = parser.parse_args()
    ciranda.init()
    dist.init_process_group("gloo")
    with other_work(args.processes if ciranda.rank() == 0 else 0):
        for n_bytes in map(parse_size, args.sizes.split(",")):
            ours, theirs = measure(n_bytes, args.turns, args.seconds)
            if ciranda.rank() == 0:
                times = f"ciranda {ours:8.1f} us, gloo {theirs:8.1f} us, ratio {theirs / ours:.2f}"
                print(f"{format_size(n_bytes):>8}: {times}", flush=True)
    dist.destroy_process_group()
    ciranda.shutdown()


if __name__ == "__main__":
    main()
