"""A rank of engine_start.py: it meets the others by Ciranda and by gloo, in turns, and writes how long each took.

    engine_start_rank.py FOLDER GLOO_PORT FIRST

All that is imported is there before the clock runs, which starts when all processes are at the same point.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

import ciranda
from ciranda.engines.identity import identity

CALLS = 500
STEP = np.ones(1024, np.float32)  # 4 KiB


def who() -> tuple[int, int]:
    """The rank and the number of ranks, as the engine or `ciranda run` gives them."""
    found = identity(os.environ)
    if found is not None and "CIRANDA_RANK" not in os.environ:
        return found.rank, found.size
    return int(os.environ["CIRANDA_RANK"]), int(os.environ["CIRANDA_SIZE"])


def together(folder: Path, name: str, rank: int, size: int) -> None:
    """Wait until all processes are here."""
    (folder / f"{name}.{rank}").touch()
    while len(list(folder.glob(f"{name}.*"))) < size:
        time.sleep(0.001)


def by_ciranda() -> None:
    ciranda.init()
    ciranda.allreduce(np.ones(4, np.float32), name="first")


def by_gloo(rank: int, size: int, address: str, port: str) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://{address}:{port}", rank=rank, world_size=size)
    dist.all_reduce(torch.ones(4))


def steady_us() -> float:
    """The median time of a call of 4 KiB, here."""
    times = []
    for _ in range(CALLS):
        begin = time.perf_counter()
        ciranda.allreduce(STEP, name="step")
        times.append(time.perf_counter() - begin)
    return 1e6 * statistics.median(times)


def main() -> None:
    folder, port, first = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    torch.set_num_threads(1)
    rank, size = who()
    ways: dict[str, Callable[[], None]] = {
        "ciranda": by_ciranda,
        "gloo": lambda: by_gloo(rank, size, os.environ["GLOO_ADDRESS"], port),
    }
    found: dict[str, object] = {}
    for name in sorted(ways, key=lambda each: each != first):
        together(folder, name, rank, size)
        begin = time.monotonic()
        ways[name]()
        found[name] = (begin, time.monotonic())
        together(folder, f"{name}-after", rank, size)
        if name == "ciranda":
            found["steady_us"] = steady_us()
            ciranda.shutdown()
        else:
            dist.destroy_process_group()
    (folder / f"found.{rank}").write_text(json.dumps(found), encoding="ascii")


if __name__ == "__main__":
    main()
