"""One training step alone, with Ciranda, and with torch DDP over gloo: in one run, in turns.

    ciranda run --no-prefix -np 2 python benchmarks/train_step.py [--json FILE]

*overhead* is a step's time beyond the local one, *efficiency* the local step's time over it, *ratio* DDP's overhead
over Ciranda's. The local steps too are made by all ranks at once, so that they share memory and caches alike.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from measuring import Timing, gloo, interleave
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import ciranda.torch as circle

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


@dataclass(frozen=True)
class Workload:
    """A model, the images in each rank's batch, and how many steps make one turn."""

    name: str
    make: Callable[[], nn.Module]
    batch: int
    steps: int


WORKLOADS = (Workload("MLP", mlp, 32, 40), Workload("CNN", cnn, 32, 20), Workload("CNN, large", large_cnn, 64, 4))


def make_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: int) -> Step:
    images, labels = torch.rand(batch, 1, 8, 8), torch.randint(10, (batch,))

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def steps_of(workload: Workload) -> tuple[dict[str, Step], int]:
    """The three ways to make a step, each on a model of its own; and the number of parameters."""
    torch.manual_seed(1)
    model = workload.make()

    def sgd(of: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(of.parameters(), lr=0.001, momentum=0.9)

    ours, theirs = copy.deepcopy(model), DistributedDataParallel(copy.deepcopy(model))
    circle.broadcast_parameters(ours.state_dict(), root_rank=0)
    optimizer = circle.DistributedOptimizer(sgd(ours), named_parameters=ours.named_parameters(prefix=workload.name))
    steps = {
        "local": make_step(model, sgd(model), workload.batch),
        "ciranda": make_step(ours, optimizer, workload.batch),
        "ddp": make_step(theirs, sgd(theirs), workload.batch),
    }
    return steps, sum(p.numel() for p in model.parameters())


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

    @property
    def ratio(self) -> float:
        """Infinite where Ciranda's overhead is lost in the noise."""
        return self.overhead("ddp") / self.overhead("ciranda") if self.overhead("ciranda") > 0 else math.inf

    def line(self) -> str:
        ours, theirs = self.overhead("ciranda"), self.overhead("ddp")
        times = " ".join(f"{t.median:9.3f} {t.min:9.3f}" for t in self.times.values())
        shares = f"{self.efficiency('ciranda'):10.0%} {self.efficiency('ddp'):8.0%}"
        return (
            f"{self.workload:11} {self.parameters:>10,} {times} {ours:12.3f} {theirs:9.3f} {shares} {self.ratio:6.1f}x"
        )


HEADER = (
    f"{'':22} {'local':>19} {'ciranda':>19} {'torch DDP':>19} {'overhead':>22} {'efficiency':>19}\n"
    f"{'model':11} {'parameters':>10} {'median':>9} {'min':>9} {'median':>9} {'min':>9} {'median':>9} {'min':>9} "
    f"{'ciranda':>12} {'DDP':>9} {'ciranda':>10} {'DDP':>8} {'ratio':>7}"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=30, help="turns that each system gets")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    torch.set_num_threads(1)
    circle.init()
    is_first = circle.rank() == 0
    rows = []
    if is_first:
        print(f"{circle.size()} ranks, one torch thread each; milliseconds a step\n{HEADER}", flush=True)
    with gloo():
        for workload in WORKLOADS:
            steps, n_parameters = steps_of(workload)
            times = interleave(steps, workload.name, args.blocks, workload.steps, warm_up=3)
            row = Row(workload.name, n_parameters, times)
            rows.append(row)
            if is_first:
                print(row.line(), flush=True)
    if is_first and args.json is not None:
        data = [{**asdict(row), "ratio": row.ratio} for row in rows]
        args.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    circle.shutdown()


if __name__ == "__main__":
    main()
