"""A training step of a layer whose classes are divided over the ranks, with PaddlePaddle: its time, a rank's memory.

MKL_ENABLE_INSTRUCTIONS=AVX2 ciranda run --no-prefix -np 4 python benchmarks/paddle_sharded_fc.py

In dygraph, with plain SGD. See sharded_fc.py for PyTorch's, and for a dense layer.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from measuring import gather_ms

import ciranda.paddle as hvd

import paddle  # isort: skip (the oldest version needs it so)

from ciranda.paddle.nn import ShardedLinear, sharded_softmax_cross_entropy

MIB = 1 << 20


def _memory(row: str) -> float:
    """What this process has in memory, in MiB: VmRSS now, VmHWM at most since the peak was reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(row)) / 1024


def _measure(args: argparse.Namespace, n_classes: int) -> None:
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    layer = ShardedLinear(args.features, n_classes)
    optimizer = paddle.optimizer.SGD(0.1, parameters=layer.parameters())
    rng = np.random.default_rng(hvd.rank())
    features = paddle.to_tensor(rng.normal(size=(args.batch, args.features)).astype(np.float32), stop_gradient=False)
    labels = paddle.to_tensor(rng.integers(0, n_classes, args.batch))
    starts, ends = [], []
    for _ in range(args.steps + 1):
        hvd.barrier()
        starts.append(time.perf_counter_ns())
        sharded_softmax_cross_entropy(features, labels, layer).backward()
        optimizer.step()
        optimizer.clear_grad(set_to_zero=False)
        ends.append(time.perf_counter_ns())
    # The first step allocates.
    timing = gather_ms(starts[1:], ends[1:], f"step.{n_classes}")
    weight = layer.n_rows * args.features * 4 / MIB
    most = max(hvd.allgather_object(_memory("VmHWM") - before))
    if hvd.rank() == 0:
        print(
            f"{n_classes:>9} classes: step median {timing.median:9.2f} ms, min {timing.min:9.2f} ms; "
            f"memory of a rank at most {most:8.1f} MiB, of which the weight {weight:7.1f} MiB",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, nargs="+", default=[10_000, 1_000_000, 10_000_000])
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--batch", type=int, default=16, help="samples of each rank")
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    hvd.init()
    if hvd.rank() == 0:
        print(f"Paddle {paddle.__version__}: {hvd.size()} ranks, {args.batch} samples each, float32", flush=True)
    for n_classes in args.classes:
        _measure(args, n_classes)
    hvd.shutdown()


if __name__ == "__main__":
    main()
