"""How long after a stall warning the stacks of all ranks are there, and whether the job goes on.

Runs a job of some ranks, of which one after the other keeps the others waiting, and then goes on: in Python, in C with
the GIL and without it, in a lock, and stopped by SIGSTOP. Prints for each kind how many of its stalls were told with
the stacks of all ranks, with the right place, and the longest time between the warning and the last of the stacks.
Fails if the job has ended early.

    python benchmarks/hang_stacks.py --stalls 100
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

STALL_SECONDS = 3.5
WARNING_SECONDS = 1


# -- what a rank does -----------------------------------------------------------------------------------------------


def in_python() -> None:
    """Compute in Python."""
    end = time.monotonic() + STALL_SECONDS
    while time.monotonic() < end:
        pass


def in_c_with_gil() -> None:
    """Keep the GIL in C."""
    ctypes.PyDLL(None).usleep(int(STALL_SECONDS * 1e6))


def in_c() -> None:
    """Be in C without the GIL."""
    ctypes.CDLL(None).usleep(int(STALL_SECONDS * 1e6))


def in_lock() -> None:
    """Wait for a lock that nobody gives back."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=STALL_SECONDS)


def stopped() -> None:
    """Be stopped by a signal, and continued by another process."""
    again = f"import os, time; time.sleep({STALL_SECONDS}); os.kill({os.getpid()}, {int(signal.SIGCONT)})"
    with subprocess.Popen([sys.executable, "-S", "-c", again]):
        os.kill(os.getpid(), signal.SIGSTOP)


KINDS: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (in_python, in_c_with_gil, in_c, in_lock, stopped)
}


def as_rank(n_stalls: int) -> None:
    """Make a call a stall; before it, one rank does something of another kind each time."""
    import numpy as np

    import ciranda

    ciranda.init()
    for number in range(n_stalls):
        if ciranda.rank() == number % ciranda.size():
            [*KINDS.values()][number % len(KINDS)]()
        ciranda.allreduce(np.ones(10), name=f"grad.{number}")
    if ciranda.rank() == 0:
        print("went on to the end", flush=True)


# -- what is seen from outside --------------------------------------------------------------------------------------


def watch_files(folder: Path, n_ranks: int, seen: dict[int, list[float]], is_done: threading.Event) -> None:
    """Note when each rank's stacks have grown; the time that the file system keeps is too coarse on some."""
    sizes = dict.fromkeys(range(n_ranks), 0)
    while not is_done.wait(0.005):
        for rank in range(n_ranks):
            path = folder / f"rank.{rank}" / "stacks.txt"
            size = path.stat().st_size if path.exists() else 0
            if size != sizes[rank]:
                sizes[rank] = size
                seen[rank].append(time.monotonic())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--stalls", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_rank:
        return as_rank(options.stalls)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "out"
        command = ["ciranda", "run", "-np", str(options.ranks), "--output-dir", str(folder),
                   "--stall-warning-seconds", str(WARNING_SECONDS), "--straggler-share", "0",
                   sys.executable, __file__, "--as-rank", "--stalls", str(options.stalls)]  # fmt: skip
        seen: dict[int, list[float]] = {rank: [] for rank in range(options.ranks)}
        is_done = threading.Event()
        watcher = threading.Thread(target=watch_files, args=(folder, options.ranks, seen, is_done))
        watcher.start()
        lines: list[tuple[float, str]] = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
            assert job.stdout is not None
            for line in job.stdout:
                lines.append((time.monotonic(), line.rstrip()))
        is_done.set()
        watcher.join()
    report(lines, seen, options.stalls, options.ranks)
    went_on = any("went on to the end" in line for _, line in lines)
    print(f"the job ended with code {job.returncode}" + (", having gone on each time" if went_on else ""))
    raise SystemExit(0 if went_on and job.returncode == 0 else 1)


def report(lines: list[tuple[float, str]], seen: dict[int, list[float]], n_stalls: int, n_ranks: int) -> None:
    warned: dict[int, float] = {}
    for when, line in lines:
        if found := re.search(r"'grad\.(\d+)' has waited", line):
            warned.setdefault(int(found[1]), when)
    for at, kind in enumerate(KINDS):
        took, n_named = [], 0
        for number in range(at, n_stalls, len(KINDS)):
            began = warned.get(number)
            if began is None:
                continue
            until = warned.get(number + 1, began + STALL_SECONDS)
            stacks = [next((when for when in seen[rank] if began - 0.5 < when < until), None) for rank in seen]
            if all(when is not None for when in stacks):
                took.append(max(when for when in stacks if when is not None) - began)
            place = rf"ciranda: rank {number % n_ranks} \(.*\): .*" + (
                "stopped by a signal" if kind == "stopped" else kind
            )
            n_named += any(began - 0.5 < when < until and re.search(place, line) for when, line in lines)
        n_all = len(range(at, n_stalls, len(KINDS)))
        longest = f"{max(took):.2f} s at most, {sorted(took)[len(took) // 2]:.2f} s median" if took else "-"
        print(f"{kind:14} {len(took)} of {n_all} with the stacks of all ranks, {n_named} named; {longest}", flush=True)


if __name__ == "__main__":
    main()
