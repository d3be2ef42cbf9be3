"""What the benchmarks of training share: a clock over all ranks, and gloo for comparison."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

import ciranda


@dataclass(frozen=True)
class Timing:
    """Times of one thing in milliseconds."""

    median: float
    min: float


def gather_ms(starts_ns: list[int], ends_ns: list[int], name: str, per: int = 1) -> Timing:
    """From the last rank's start to the last rank's end, divided by `per`. All ranks of a machine share its clock."""
    everyone = ciranda.allgather(np.array([[starts_ns, ends_ns]], dtype=np.int64), name=name)
    times = (everyone[:, 1].max(axis=0) - everyone[:, 0].max(axis=0)) / 1e6 / per
    return Timing(statistics.median(times.tolist()), float(times.min()))


def interleave(
    calls: dict[str, Callable[[], object]],
    name: str,
    blocks: int,
    steps: int,
    warm_up: int,
    before: dict[str, Callable[[], object]] | None = None,
    after: dict[str, Callable[[], object]] | None = None,
) -> dict[str, Timing]:
    """Time the calls in turns: `blocks` times `steps` in a row, all ranks starting together. Times are per call.

    What is to happen `before` the first of a row is not timed; what is to happen `after` the last is.
    """
    starts: dict[str, list[int]] = {key: [] for key in calls}
    ends: dict[str, list[int]] = {key: [] for key in calls}
    for block in range(warm_up + blocks):
        for key in list(calls) if block % 2 == 0 else reversed(list(calls)):
            call = calls[key]
            call()
            if before is not None and key in before:
                before[key]()
            ciranda.barrier()
            start = time.perf_counter_ns()
            for _ in range(steps):
                call()
            if after is not None and key in after:
                after[key]()
            end = time.perf_counter_ns()
            if block >= warm_up:
                starts[key].append(start)
                ends[key].append(end)
    return {key: gather_ms(starts[key], ends[key], f"{name}.{key}", per=steps) for key in calls}


@contextmanager
def gloo() -> Iterator[None]:
    """torch.distributed over gloo on the loopback interface, for all ranks of this world."""
    from torch import distributed

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory(prefix="ciranda-benchmark-") as folder:
        path = ciranda.broadcast_object(os.path.join(folder, "store"), root_rank=0)
        distributed.init_process_group(
            "gloo", init_method=f"file://{path}", rank=ciranda.rank(), world_size=ciranda.size()
        )
        try:
            yield
            ciranda.barrier()  # rank 0 owns the folder
        finally:
            distributed.destroy_process_group()
