"""What it costs a training step that its calls are recorded for a timeline of all ranks: in one run, in turns.

    ciranda run --no-prefix -np 2 python benchmarks/recorded_step.py [--pairs 400]

Rows of steps of train_step.py's models follow each other, recorded and not; two neighbors make a pair. Printed is the
median of what the recorded row of a pair takes more, with the interval in which the true median is by 95%: the time
from the last rank's start to the last rank's end, and the processor time of all ranks and all their threads, of which
one writes the records to the file.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time

import numpy as np
import torch
from train_step import WORKLOADS, Step, Workload, make_step, sgd

import ciranda.torch as hvd
from ciranda import _basics
from ciranda.bench.plan import Array


class Recorded:
    """A file of this rank's records, as the launcher makes one for each rank."""

    def __init__(self) -> None:
        fd, self._path = tempfile.mkstemp(prefix="ciranda-records-")
        os.close(fd)
        self.n_bytes = 0

    def set(self, is_on: bool) -> None:
        engine = _basics.engine()
        engine.start_records(self._path) if is_on else engine.stop_records()

    def remove(self) -> None:
        self.n_bytes = os.path.getsize(self._path)
        os.unlink(self._path)


def row_of(step: Step, n_steps: int) -> tuple[int, int, int]:
    """When it began and ended, and its processor time, in nanoseconds."""
    step()
    hvd.barrier()
    cpu, begin = time.process_time_ns(), time.perf_counter_ns()
    for _ in range(n_steps):
        step()
    end = time.perf_counter_ns()
    return begin, end, time.process_time_ns() - cpu


def in_turns(step: Step, n_steps: int, n_pairs: int) -> tuple[Array, Array]:
    """Of each pair's row without and with a recording: nanoseconds a step, and those of processors."""
    recorded = Recorded()
    rows = []
    for pair in range(n_pairs):
        found = {}
        for is_on in (False, True) if pair % 2 == 0 else (True, False):
            recorded.set(is_on)
            found[is_on] = row_of(step, n_steps)
        rows.append((found[False], found[True]))
    recorded.set(False)
    recorded.remove()
    assert recorded.n_bytes > n_pairs, "nothing was recorded"
    of_ranks = hvd.allgather(torch.tensor([rows], dtype=torch.int64)).numpy()  # rank, pair, is_on, what
    took = of_ranks[..., 1].max(axis=0) - of_ranks[..., 0].max(axis=0)
    return took / n_steps, of_ranks[..., 2].sum(axis=0) / n_steps


def median_of_more(rows: Array) -> str:
    more = np.sort(rows[:, 1] / rows[:, 0] - 1)
    n = len(more)
    off = 1.96 * math.sqrt(n) / 2  # of the number of values below the median
    low, high = more[max(0, math.floor(n / 2 - off))], more[min(n - 1, math.ceil(n / 2 + off))]
    return f"{np.median(more):+7.2%} ({low:+.2%} to {high:+.2%})"


def report(workload: Workload, n_pairs: int) -> str:
    torch.manual_seed(1)
    model = workload.make()
    named = model.named_parameters(prefix=workload.name)
    step = make_step(model, hvd.DistributedOptimizer(sgd(model), named_parameters=named), workload.batch)
    for _ in range(50):
        step()
    took, cpu = in_turns(step, workload.steps // 2, n_pairs)
    return (
        f"{workload.name:4} {np.median(took[:, 0]) / 1e6:7.3f} ms a step, recorded {median_of_more(took)}; "
        f"of processors {np.median(cpu[:, 0]) / 1e6:7.3f} ms, recorded {median_of_more(cpu)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=400, help="of rows of steps")
    n_pairs = parser.parse_args().pairs
    torch.set_num_threads(1)
    hvd.init()
    for workload in WORKLOADS[:2]:
        text = report(workload, n_pairs)
        if hvd.rank() == 0:
            print(text, flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
