"""One training step alone, with Ciranda in several ways, and with torch DDP over gloo: in one run, in turns.

    ciranda run --no-prefix -np 2 python benchmarks/train_step.py [--json FILE]
    python benchmarks/tcp.py link --rate 1gbit --run "benchmarks/train_step.py --only transformer"

*exposed* is a step's time beyond the local one: what of the combining was not hidden behind the backward pass, and
waiting for the slowest rank, which a barrier in each step shows by itself. *efficiency* is the local step's time over
it. The local steps too are made by all ranks at once, so that they share memory and caches alike. *alone* is what the
same gradients take when they are all there and nothing is computed meanwhile. See also gradients.py.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from gradients import buckets_of, grouped, over_gloo
from measuring import Timing, gloo, interleave
from torch import distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import ciranda.torch as hvd
from ciranda.torch.distributed import ddp_comm_hook
from ciranda.torch.overlapping_optimizer import OverlappingOptimizer

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

#: What combines the gradients, by the name of its column; the first combines none.
SYSTEMS = {
    "barrier": "nothing but a barrier",
    "ciranda": "DistributedOptimizer",
    "overlap": "DistributedOptimizer(overlap_forward=model)",
    "overlap/fifo": "the same without priorities",
    "buckets": "DistributedOptimizer(gradient_as_bucket_view=True)",
    "ddp/ciranda": 'DDP, backend "ciranda"',
    "ddp/hook": 'DDP, backend "ciranda", views, ddp_comm_hook',
    "ddp/gloo": 'DDP, backend "gloo"',
}


def combine_alone(model: nn.Module, name: str) -> dict[str, Step]:
    """The gradients of a model, and nothing else: with Ciranda, and over gloo in buckets."""
    ours = [torch.zeros_like(parameter, requires_grad=False) for parameter in model.parameters()]
    flat = torch.cat([gradient.flatten() for gradient in ours])
    combine, buckets = grouped(f"{name}.alone"), buckets_of(flat)
    return {"alone/ciranda": lambda: combine(ours), "alone/gloo": lambda: over_gloo(buckets)}


def make_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: int) -> Step:
    images, labels = torch.rand(batch, 1, 8, 8), torch.randint(10, (batch,))

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def with_barrier(model: nn.Module, batch: int) -> Step:
    """The local step of a model alike; then all wait for each other."""
    alike = copy.deepcopy(model)
    local = make_step(alike, sgd(alike), batch)

    def step() -> None:
        local()
        hvd.barrier()

    return step


def sgd(of: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(of.parameters(), lr=0.001, momentum=0.9)


@contextmanager
def priorities(are_given: bool) -> Iterator[None]:
    """Within this, optimizers give priorities to what the forward pass needs first, or none."""
    usual = OverlappingOptimizer._priority_of
    if not are_given:
        OverlappingOptimizer._priority_of = lambda self, parameters: 0  # type: ignore[method-assign]
    try:
        yield
    finally:
        OverlappingOptimizer._priority_of = usual  # type: ignore[method-assign]


def steps_of(workload: Workload) -> tuple[dict[str, Step], dict[str, Callable[[], object]], int]:
    """Each way to make a step, on a model of its own; what ends a row of steps, if anything; how many parameters."""
    torch.manual_seed(1)
    model = workload.make()
    ends: dict[str, Callable[[], object]] = {}
    steps = {"local": make_step(model, sgd(model), workload.batch), "barrier": with_barrier(model, workload.batch)}
    for system in ("ciranda", "overlap", "overlap/fifo", "buckets"):
        ours = copy.deepcopy(model)
        with priorities(system != "overlap/fifo"):
            optimizer = hvd.DistributedOptimizer(
                sgd(ours),
                named_parameters=ours.named_parameters(prefix=f"{workload.name}.{system}"),
                gradient_as_bucket_view=system == "buckets",
                overlap_forward=ours if system.startswith("overlap") else None,
            )
        steps[system] = make_step(ours, optimizer, workload.batch)
        if system.startswith("overlap"):
            ends[system] = ours.state_dict  # which makes the updates that the last step has left
    for backend in ("ciranda", "gloo"):
        theirs = DistributedDataParallel(copy.deepcopy(model), process_group=GROUPS[backend])
        steps[f"ddp/{backend}"] = make_step(theirs, sgd(theirs), workload.batch)
    hooked = DistributedDataParallel(
        copy.deepcopy(model), process_group=GROUPS["ciranda"], gradient_as_bucket_view=True
    )
    hooked.register_comm_hook(GROUPS["ciranda"], ddp_comm_hook)
    steps["ddp/hook"] = make_step(hooked, sgd(hooked), workload.batch)
    steps |= combine_alone(model, workload.name)
    return steps, ends, sum(p.numel() for p in model.parameters())


#: torch's process groups, by backend.
GROUPS: dict[str, distributed.ProcessGroup | None] = {"gloo": None}


@dataclass(frozen=True)
class Row:
    """One workload; times in milliseconds, of one step."""

    workload: str
    parameters: int
    times: dict[str, Timing]

    def exposed(self, system: str) -> float:
        return self.times[system].median - self.times["local"].median

    def efficiency(self, system: str) -> float:
        return self.times["local"].median / self.times[system].median

    def lines(self) -> str:
        local = self.times["local"]
        gloo_exposed = self.exposed("ddp/gloo") if "ddp/gloo" in self.times else float("nan")
        alone = ", ".join(f"{name} {self.times[f'alone/{name}'].median:.3f}" for name in ("ciranda", "gloo"))
        lines = [
            f"{self.workload}: {self.parameters:,} parameters, local {local.median:.3f} (min {local.min:.3f})",
            f"  combining alone: {alone}",
        ]
        for system, what in SYSTEMS.items():
            if system not in self.times:
                continue
            timing, exposed = self.times[system], self.exposed(system)
            # Infinite where what is exposed is lost in the noise.
            ratio = gloo_exposed / exposed if exposed > 0 else float("inf")
            lines.append(
                f"  {what:52} {timing.median:9.3f} {timing.min:9.3f} {exposed:9.3f} {self.efficiency(system):6.0%}"
                f" {ratio:6.1f}x"
            )
        return "\n".join(lines)


HEADER = f"  {'':52} {'median':>9} {'min':>9} {'exposed':>9} {'effic.':>6} {'gloo/it':>7}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=30, help="turns that each system gets")
    parser.add_argument("--only", choices=[workload.name for workload in WORKLOADS])
    parser.add_argument("--steps", type=int, metavar="N", help="in a row; by default as many as suit the model")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="which of them, besides the local step")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    wanted = {"local", "alone/ciranda", "alone/gloo", *args.systems.split(",")}
    torch.set_num_threads(1)
    hvd.init()
    is_first = hvd.rank() == 0
    rows = []
    if is_first:
        print(f"{hvd.size()} ranks, one torch thread each; milliseconds a step\n{HEADER}", flush=True)
    with gloo():
        GROUPS["ciranda"] = distributed.new_group(backend="ciranda")
        for workload in WORKLOADS:
            if args.only not in (None, workload.name):
                continue
            steps, ends, n_parameters = steps_of(workload)
            steps = {name: step for name, step in steps.items() if name in wanted}
            blocks, in_a_row = max(2, round(args.blocks * workload.share)), args.steps or workload.steps
            times = interleave(steps, workload.name, blocks, in_a_row, 3, ends, ends)
            rows.append(Row(workload.name, n_parameters, times))
            if is_first:
                print(rows[-1].lines(), flush=True)
    if is_first and args.json is not None:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    hvd.shutdown()


if __name__ == "__main__":
    main()
