"""Many tensors at once, without a model to compute them: with Ciranda in three ways, and with gloo in two, in turns.

    ciranda run --no-prefix -np 2 python benchmarks/gradients.py [--json FILE]

The gradients of ResNet-50, in float32 and float16, and of GPT-2 small; 160 small tensors; 1,000 of 1 KiB; 16 MiB of
each floating type. All are there before the time begins, written anew. *floor* is the time in which every rank writes
its tensors anew, once.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from measuring import Timing, gloo, interleave
from torch import distributed

import ciranda.torch as hvd

Shapes = list[tuple[int, ...]]
Tensors = list[torch.Tensor]
Combine = Callable[[Tensors], None]

BUCKET_BYTES = 25 << 20  # as large as those of torch's DDP


def resnet50_shapes() -> Shapes:
    """The 161 parameters of ResNet-50."""
    shapes: Shapes = [(64, 3, 7, 7), (64,), (64,)]
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            for shape in ((width, inputs, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)):
                shapes += [shape, shape[:1], shape[:1]]
            if block == 0:
                shapes += [(4 * width, inputs, 1, 1), (4 * width,), (4 * width,)]
            inputs = 4 * width
    return [*shapes, (1000, 2048), (1000,)]


def gpt2_shapes() -> Shapes:
    """The 148 parameters of GPT-2 small; its head shares the embedding's."""
    width = 768
    block: Shapes = [(width,), (width,), (width, 3 * width), (3 * width,), (width, width), (width,)]
    block += [(width,), (width,), (width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return [(50257, width), (1024, width), *(block * 12), (width,), (width,)]


@dataclass(frozen=True)
class Gradients:
    """Tensors to combine, and the share of turns that they get."""

    name: str
    shapes: Shapes
    dtype: torch.dtype = torch.float32
    share: float = 1.0

    @property
    def count(self) -> int:
        return sum(map(math.prod, self.shapes))


ALL = (
    Gradients("ResNet-50, float32", resnet50_shapes()),
    Gradients("ResNet-50, float16", resnet50_shapes(), torch.float16),
    Gradients("GPT-2 small", gpt2_shapes(), share=0.5),
    Gradients("160 small", [(305,)] * 160),
    Gradients("1,000 of 1 KiB", [(256,)] * 1000, share=0.5),
    *(
        Gradients(f"16 MiB, {str(dtype).removeprefix('torch.')}", [((16 << 20) // dtype.itemsize,)], dtype)
        for dtype in (torch.float32, torch.float16, torch.bfloat16)
    ),
)


def grouped(name: str) -> Combine:
    """One call."""
    return lambda tensors: hvd.grouped_allreduce_(tensors, op=hvd.Sum, name=name) and None


def named(name: str) -> Combine:
    """A call for each, all in flight."""

    def combine(tensors: Tensors) -> None:
        handles = [hvd.allreduce_async_(t, op=hvd.Sum, name=f"{name}.{i}") for i, t in enumerate(tensors)]
        for handle in handles:
            hvd.synchronize(handle)

    return combine


def buckets_of(flat: torch.Tensor) -> Tensors:
    """Views of gradients that lie one after the other."""
    return list(flat.split(BUCKET_BYTES // flat.element_size()))


def over_gloo(tensors: Tensors) -> None:
    for work in [distributed.all_reduce(tensor, async_op=True) for tensor in tensors]:
        work.wait()


def measure(what: Gradients, blocks: int) -> dict[str, Timing]:
    """The time of each way; milliseconds."""
    private = [torch.ones(shape, dtype=what.dtype) for shape in what.shapes]
    memory = hvd.empty(what.count, dtype=what.dtype)
    shared = list(torch.split(memory, [tensor.numel() for tensor in private]))
    flat = torch.ones(what.count, dtype=what.dtype)
    ways: dict[str, tuple[Combine, Tensors]] = {
        "shared": (grouped(f"{what.name}.shared"), shared),
        "grouped": (grouped(f"{what.name}.grouped"), private),
        "named": (named(what.name), private),
        "gloo, buckets": (over_gloo, buckets_of(flat)),
        "gloo, tensors": (over_gloo, private),
    }

    def rewrite(tensors: Tensors) -> None:
        for tensor in tensors:
            tensor.fill_(1.0)

    calls = {way: lambda combine=combine, tensors=tensors: combine(tensors) for way, (combine, tensors) in ways.items()}
    before = {way: lambda tensors=tensors: rewrite(tensors) for way, (_, tensors) in ways.items()}
    floor = {"floor": lambda: rewrite(private)}
    return interleave(calls | floor, what.name, max(2, round(blocks * what.share)), 1, 2, before)


def line(what: Gradients, times: dict[str, Timing]) -> str:
    """Medians; and how many times as long gloo took as the best of Ciranda's ways in private memory."""
    ours = min(times["grouped"].median, times["named"].median)
    ratio = times["gloo, buckets"].median / ours
    figures = " ".join(f"{timing.median:>13.3f}" for timing in times.values())
    n_bytes = what.count * what.dtype.itemsize
    return f"{what.name:<20}{n_bytes / 1e6:>8.1f} {figures} {ratio:>6.1f}x"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="tensors with this in their name")
    parser.add_argument("--blocks", type=int, default=10, help="turns that each way gets")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    is_first = hvd.rank() == 0
    found = {}
    with gloo():
        for what in (each for each in ALL if args.only in each.name):
            times = found[what.name] = measure(what, args.blocks)
            if is_first and len(found) == 1:
                print(f"{hvd.size()} ranks, one torch thread each; medians in milliseconds")
                print(f"{'':20}{'MB':>8} {' '.join(f'{way:>13}' for way in times)} {'ratio':>7}")
            if is_first:
                print(line(what, times), flush=True)
    if is_first and args.json is not None:
        data = {name: {way: asdict(timing) for way, timing in times.items()} for name, times in found.items()}
        args.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    hvd.shutdown()


if __name__ == "__main__":
    main()
