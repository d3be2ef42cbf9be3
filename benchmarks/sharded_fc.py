"""A training step of a layer whose classes are divided over the ranks: its time, and the memory of a rank.

ciranda run --no-prefix -np 4 python benchmarks/sharded_fc.py
ciranda run --no-prefix -np 1 python benchmarks/sharded_fc.py --dense --batch 64 --classes 10000 1000000

With --dense it is torch.nn.Linear and cross_entropy, in each process; give it one, and all samples.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from measuring import gather_ms

import ciranda.torch as hvd
from ciranda.torch.nn import ShardedLinear, sharded_softmax_cross_entropy

MIB = 1 << 20


def _memory(row: str) -> float:
    """What this process has in memory, in MiB: VmRSS now, VmHWM at most since the peak was reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(row)) / 1024


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _dense_loss(layer: torch.nn.Module, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(layer(features), labels)


def _sharded_loss(layer: ShardedLinear, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return sharded_softmax_cross_entropy(features, labels, layer)


def _measure(args: argparse.Namespace, n_classes: int) -> None:
    before = _memory("VmRSS")
    _reset_peak()
    layer: torch.nn.Module
    loss_of: Callable[..., torch.Tensor]
    if args.dense:
        layer, loss_of = torch.nn.Linear(args.features, n_classes, bias=False), _dense_loss
    else:
        layer = ShardedLinear(args.features, n_classes, sample_rate=args.sample_rate, sparse=args.sample_rate < 1)
        loss_of = _sharded_loss
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(hvd.rank())
    features = torch.randn(args.batch, args.features, generator=generator).requires_grad_()
    labels = torch.randint(n_classes, (args.batch,), generator=generator)
    starts, ends = [], []
    for _ in range(args.steps + 1):
        hvd.barrier()
        starts.append(time.perf_counter_ns())
        optimizer.zero_grad()
        loss_of(layer, features, labels).backward()
        optimizer.step()
        ends.append(time.perf_counter_ns())
    # The first step allocates.
    timing = gather_ms(starts[1:], ends[1:], f"step.{n_classes}")
    mine = np.array([[_memory("VmHWM") - before, sum(each.nbytes for each in layer.parameters()) / MIB]])
    most, of_weight = hvd.allgather(torch.from_numpy(mine)).amax(0).tolist()
    if hvd.rank() == 0:
        print(
            f"{n_classes:>9} classes: step median {timing.median:9.2f} ms, min {timing.min:9.2f} ms; "
            f"memory of a rank at most {most:8.1f} MiB, of which the weight {of_weight:7.1f} MiB",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, nargs="+", default=[10_000, 1_000_000, 10_000_000])
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--batch", type=int, default=16, help="samples of each rank")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--sample-rate", type=float, default=1.0, help="below 1, with sparse gradients")
    parser.add_argument("--dense", action="store_true")
    args = parser.parse_args()
    hvd.init()
    torch.set_num_threads(1)
    if hvd.rank() == 0:
        kind = "dense" if args.dense else "sharded"
        print(f"{kind}: {hvd.size()} ranks, {args.batch} samples each, {args.features} features, float32", flush=True)
    for n_classes in args.classes:
        _measure(args, n_classes)
    hvd.shutdown()


if __name__ == "__main__":
    main()
