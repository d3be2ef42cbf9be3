"""One training step alone, with Ciranda in five ways, and with torch DDP over gloo: in one run, in turns.

    ciranda run --no-prefix -np 2 python benchmarks/train_step.py [--json FILE]

*overhead* is a step's time beyond the local one, *efficiency* the local step's time over it. The local steps too are
made by all ranks at once, so that they share memory and caches alike. The last two rows are gradients alone, without a
model: an optimizer whose step is to combine them, as many and as large as those of ResNet-50, and 160 small ones.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from measuring import Timing, gloo, interleave
from torch import distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import ciranda.torch as circle
from ciranda.torch.distributed import ddp_comm_hook

Step = Callable[[], None]


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(512, 120), nn.ReLU(), nn.Linear(120, 10),
    )  # fmt: skip


def large_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(2048, 1500), nn.ReLU(), nn.Linear(1500, 10),
    )  # fmt: skip


class Transformer(nn.Module):
    """Reads the rows of an image as eight tokens."""

    def __init__(self, width: int = 384, layers: int = 6) -> None:
        super().__init__()
        self.embed = nn.Linear(8, width)
        layer = nn.TransformerEncoderLayer(width, 6, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.layers(self.embed(images.squeeze(1))).mean(dim=1))
        return logits


@dataclass(frozen=True)
class Workload:
    """A model, the images in each rank's batch, how many steps make one turn, and the share of turns that it gets."""

    name: str
    make: Callable[[], nn.Module]
    batch: int
    steps: int
    share: float = 1.0


WORKLOADS = (
    Workload("MLP", mlp, 32, 40),
    Workload("CNN", cnn, 32, 20),
    Workload("CNN, large", large_cnn, 64, 4),
    Workload("transformer", Transformer, 64, 1, 0.4),
)

#: What combines the gradients, by the name of its column.
SYSTEMS = {
    "ciranda": "DistributedOptimizer",
    "buckets": "DistributedOptimizer(gradient_as_bucket_view=True)",
    "ddp/ciranda": 'DDP, backend "ciranda"',
    "ddp/hook": 'DDP, backend "ciranda", views, ddp_comm_hook',
    "ddp/gloo": 'DDP, backend "gloo"',
}


def make_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: int) -> Step:
    images, labels = torch.rand(batch, 1, 8, 8), torch.randint(10, (batch,))

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def sgd(of: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(of.parameters(), lr=0.001, momentum=0.9)


def steps_of(workload: Workload) -> tuple[dict[str, Step], int]:
    """Each way to make a step, on a model of its own; and the number of parameters."""
    torch.manual_seed(1)
    model = workload.make()
    steps = {"local": make_step(model, sgd(model), workload.batch)}
    for system in ("ciranda", "buckets"):
        ours = copy.deepcopy(model)
        optimizer = circle.DistributedOptimizer(
            sgd(ours),
            named_parameters=ours.named_parameters(prefix=f"{workload.name}.{system}"),
            gradient_as_bucket_view=system == "buckets",
        )
        steps[system] = make_step(ours, optimizer, workload.batch)
    for backend in ("ciranda", "gloo"):
        theirs = DistributedDataParallel(copy.deepcopy(model), process_group=GROUPS[backend])
        steps[f"ddp/{backend}"] = make_step(theirs, sgd(theirs), workload.batch)
    hooked = DistributedDataParallel(
        copy.deepcopy(model), process_group=GROUPS["ciranda"], gradient_as_bucket_view=True
    )
    hooked.register_comm_hook(GROUPS["ciranda"], ddp_comm_hook)
    steps["ddp/hook"] = make_step(hooked, sgd(hooked), workload.batch)
    return steps, sum(p.numel() for p in model.parameters())


#: torch's process groups, by backend.
GROUPS: dict[str, distributed.ProcessGroup | None] = {"gloo": None}


@dataclass(frozen=True)
class Row:
    """One workload; times in milliseconds, of one step."""

    workload: str
    parameters: int
    times: dict[str, Timing]

    def overhead(self, system: str) -> float:
        return self.times[system].median - self.times["local"].median

    def efficiency(self, system: str) -> float:
        return self.times["local"].median / self.times[system].median

    def lines(self) -> str:
        local, gloo_overhead = self.times["local"], self.overhead("ddp/gloo")
        lines = [f"{self.workload}: {self.parameters:,} parameters, local {local.median:.3f} (min {local.min:.3f})"]
        for system, what in SYSTEMS.items():
            timing, overhead = self.times[system], self.overhead(system)
            # Infinite where the overhead is lost in the noise.
            ratio = gloo_overhead / overhead if overhead > 0 else float("inf")
            lines.append(
                f"  {what:52} {timing.median:9.3f} {timing.min:9.3f} {overhead:9.3f} {self.efficiency(system):6.0%}"
                f" {ratio:6.1f}x"
            )
        return "\n".join(lines)


HEADER = f"  {'':52} {'median':>9} {'min':>9} {'overhead':>9} {'effic.':>6} {'gloo/it':>7}"


# --- gradients alone


def resnet50_shapes() -> list[tuple[int, ...]]:
    """The 161 parameters of ResNet-50."""
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            for shape in ((width, inputs, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)):
                shapes += [shape, shape[:1], shape[:1]]
            if block == 0:
                shapes += [(4 * width, inputs, 1, 1), (4 * width,), (4 * width,)]
            inputs = 4 * width
    return [*shapes, (1000, 2048), (1000,)]


GRADIENTS = {"ResNet-50": resnet50_shapes(), "160 small": [(305,)] * 160}


def combine(name: str, shapes: list[tuple[int, ...]], blocks: int) -> dict[str, Timing]:
    """The time to combine gradients that are all there, written anew before each time."""
    gradients = [torch.ones(shape) for shape in shapes]
    memory = circle.empty(sum(gradient.numel() for gradient in gradients))
    parts = torch.split(memory, [gradient.numel() for gradient in gradients])
    shared = [part.view(gradient.shape) for part, gradient in zip(parts, gradients, strict=True)]
    flat = [torch.cat([gradient.flatten() for gradient in gradients])]

    def rewrite(tensors: list[torch.Tensor]) -> Step:
        def call() -> None:
            for tensor in tensors:
                tensor.fill_(1.0)

        return call

    def over(group: distributed.ProcessGroup | None) -> Step:
        return lambda: [distributed.all_reduce(tensor, group=group) for tensor in flat] and None

    return interleave(
        {
            "private": lambda: circle.grouped_allreduce_(gradients, op=circle.Sum, name=f"{name}.private") and None,
            "shared": lambda: circle.grouped_allreduce_(shared, op=circle.Sum, name=f"{name}.shared") and None,
            "ddp/ciranda": over(GROUPS["ciranda"]),
            "ddp/gloo": over(None),
            "floor": rewrite(gradients),
        },
        name,
        blocks,
        steps=1,
        warm_up=3,
        before={"private": rewrite(gradients), "shared": rewrite(shared), "ddp/ciranda": rewrite(flat),
                "ddp/gloo": rewrite(flat)},
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=30, help="turns that each system gets")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    torch.set_num_threads(1)
    circle.init()
    is_first = circle.rank() == 0
    rows, combined = [], {}
    if is_first:
        print(f"{circle.size()} ranks, one torch thread each; milliseconds a step\n{HEADER}", flush=True)
    with gloo():
        GROUPS["ciranda"] = distributed.new_group(backend="ciranda")
        for workload in WORKLOADS:
            steps, n_parameters = steps_of(workload)
            blocks = max(2, round(args.blocks * workload.share))
            rows.append(Row(workload.name, n_parameters, interleave(steps, workload.name, blocks, workload.steps, 3)))
            if is_first:
                print(rows[-1].lines(), flush=True)
        for name, shapes in GRADIENTS.items():
            combined[name] = combine(name, shapes, args.blocks)
            if is_first:
                times = ", ".join(f"{way} {timing.median:.3f}" for way, timing in combined[name].items())
                print(f"gradients of {name}, median: {times}", flush=True)
    if is_first and args.json is not None:
        data = {
            "steps": [asdict(row) for row in rows],
            "gradients": {
                name: {way: asdict(timing) for way, timing in times.items()} for name, times in combined.items()
            },
        }
        args.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    circle.shutdown()


if __name__ == "__main__":
    main()
