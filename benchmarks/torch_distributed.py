"""Synchronous calls of torch.distributed over the backend ciranda, and over gloo: in one run, in turns.

    ciranda run --no-prefix -np 2 python benchmarks/torch_distributed.py [--blocks N]

Microseconds from the last rank's start to the last rank's end, medians over blocks of calls in a row. See also
train_step.py, for DDP.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import torch
from measuring import gloo, interleave
from torch import distributed

import ciranda
import ciranda.torch.distributed

SIZES = (4, 1 << 10, 64 << 10, 1 << 20)  # bytes
CALLS = 10  # in a row


def calls_of(group: distributed.ProcessGroup | None, n_bytes: int) -> dict[str, Callable[[], object]]:
    """Each collective, of tensors of so many bytes on each rank."""
    n_ranks = ciranda.size()
    tensor, table = torch.ones(n_bytes // 4), torch.ones(n_ranks * n_bytes // 4)
    return {
        "all_reduce": partial(distributed.all_reduce, tensor, distributed.ReduceOp.MAX, group=group),
        "broadcast": partial(distributed.broadcast, tensor, 0, group=group),
        "all_gather": partial(distributed.all_gather_into_tensor, table, tensor, group=group),
        "reduce_scatter": partial(distributed.reduce_scatter_tensor, tensor, table, distributed.ReduceOp.MAX, group),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=50, help="turns that each backend gets")
    args = parser.parse_args()
    torch.set_num_threads(1)
    ciranda.init()
    is_first = ciranda.rank() == 0
    if is_first:
        print(
            f"{ciranda.size()} ranks; microseconds a call\n{'':16}{'bytes':>10}{'ciranda':>10}{'gloo':>10}{'ratio':>8}"
        )
    with gloo():
        groups = {"ciranda": distributed.new_group(backend="ciranda"), "gloo": None}
        for n_bytes in SIZES:
            by_backend = {backend: calls_of(group, n_bytes) for backend, group in groups.items()}
            for name in by_backend["gloo"]:
                both = {backend: calls[name] for backend, calls in by_backend.items()}
                times = interleave(both, f"{name}.{n_bytes}", args.blocks, CALLS, 3)
                ours, theirs = (1000 * times[backend].median for backend in ("ciranda", "gloo"))
                if is_first:
                    print(f"{name:16}{n_bytes:10}{ours:10.1f}{theirs:10.1f}{theirs / ours:8.1f}", flush=True)
    ciranda.shutdown()


if __name__ == "__main__":
    main()
