"""Trains on real data with several processes, and proves the result: handwritten digits, PyTorch.

    ciranda run -np 2 python examples/digits.py

Every rank computes gradients on its share of each global batch; Ciranda averages them while the backward pass goes on.
At the end rank 0 repeats the training alone, without communication, over the same global batches in the same order, and
compares every parameter. The exit code is 1 if they differ by more than what rounding to fp32 does to this training.

The data are the 1,797 images of 8 x 8 pixels that come with scikit-learn: nothing is downloaded.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import io
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

import ciranda.torch as hvd

TEST_IMAGES = 360
# The bound of the proof, in units of the rounding error that this very training has in one process: see `prove`.
ROUNDING_MARGIN = 4.0


@dataclass
class Data:
    """Images as float tensors (n, 1, 8, 8) from 0 to 1, labels as int64 (n,)."""

    images: torch.Tensor
    labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor

    def to(self, device: torch.device) -> Data:
        return Data(*(getattr(self, each.name).to(device) for each in fields(self)))


def load_data(seed: int) -> Data:
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    images = torch.tensor(digits.images[order] / 16.0, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target[order], dtype=torch.int64)
    return Data(images[TEST_IMAGES:], labels[TEST_IMAGES:], images[:TEST_IMAGES], labels[:TEST_IMAGES])


def make_model(kind: str) -> nn.Module:
    # Smooth all through: at the kinks of ReLU and max pooling a rounding error may decide which way a gradient goes,
    # and two right runs drift apart.
    if kind == "mlp":
        return nn.Sequential(
            nn.Flatten(), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10)
        )
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.GELU(), nn.Conv2d(32, 32, 3, padding=1), nn.GELU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(512, 120), nn.GELU(), nn.Linear(120, 10),
    )  # fmt: skip


def global_batches(n_images: int, batch: int, epoch: int, seed: int) -> Iterator[torch.Tensor]:
    """Indices of each global batch of an epoch; the same on every rank. What does not fill a batch is left out."""
    generator = torch.Generator().manual_seed(seed * 1000 + epoch)
    order = torch.randperm(n_images, generator=generator)
    for start in range(0, n_images - batch + 1, batch):
        yield order[start : start + batch]


def make_optimizer(model: nn.Module, args: argparse.Namespace) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)


def loss_of(model: nn.Module, data: Data, indices: torch.Tensor) -> torch.Tensor:
    images = data.images[indices].to(next(model.parameters()).dtype)
    return functional.cross_entropy(model(images), data.labels[indices])


# -- progress ----------------------------------------------------------------------------------------------------------


class Bar:
    """A progress bar on rank 0's stderr: redrawn in place on a terminal and under `ciranda run`, else not drawn."""

    def __init__(self, n_steps: int) -> None:
        is_terminal = sys.stderr.isatty()
        self._is_drawn = hvd.rank() == 0 and (is_terminal or "CIRANDA_STORE" in os.environ)
        self._console = Console(file=io.StringIO(), width=90, force_terminal=is_terminal)
        speed = TextColumn("{task.fields[speed]}")
        columns = (TextColumn("{task.description}"), BarColumn(30), speed, TimeElapsedColumn())
        self._progress = Progress(*columns, console=self._console, auto_refresh=False)
        self._task = self._progress.add_task("", total=n_steps, speed="")
        self._drawn_at = 0.0

    def advance(self, description: str, speed: str) -> None:
        if not self._is_drawn:
            return
        self._progress.update(self._task, advance=1, description=description, speed=speed)
        if time.monotonic() - self._drawn_at > 0.05:
            self._draw("")

    def say(self, line: str) -> None:
        """A line above the bar."""
        if self._is_drawn and sys.stderr.isatty():
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
        say(line)

    def finish(self) -> None:
        if self._is_drawn:
            self._draw("\n")

    def _draw(self, end: str) -> None:
        with self._console.capture() as text:
            self._console.print(self._progress.get_renderable(), end="")
        sys.stderr.write("\r" + text.get().strip("\n") + end)
        sys.stderr.flush()
        self._drawn_at = time.monotonic()


def say(*lines: str) -> None:
    if hvd.rank() == 0:
        print(*lines, sep="\n", flush=True)


# -- training ----------------------------------------------------------------------------------------------------------


@dataclass
class History:
    """Per step and per epoch, as seen by every rank alike."""

    losses: list[float]
    accuracies: list[float]
    samples_per_second: float = 0.0


def train(model: nn.Module, data: Data, args: argparse.Namespace) -> History:
    """The distributed run. Every rank ends with the same parameters."""
    optimizer = hvd.DistributedOptimizer(make_optimizer(model, args), named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    batch = args.batch_size * hvd.size()
    history = History([], [])
    steps_per_epoch = len(data.labels) // batch
    bar = Bar(args.epochs * steps_per_epoch)
    started = time.perf_counter()
    for epoch in range(args.epochs):
        epoch_loss = torch.zeros(1, device=data.images.device)
        for step, indices in enumerate(global_batches(len(data.labels), batch, epoch, args.seed)):
            mine = indices.chunk(hvd.size())[hvd.rank()]
            optimizer.zero_grad()
            loss = loss_of(model, data, mine)
            loss.backward()
            optimizer.step()
            epoch_loss += loss.detach()
            n_samples = (epoch * steps_per_epoch + step + 1) * batch
            history.samples_per_second = n_samples / (time.perf_counter() - started)
            speed = f"{history.samples_per_second:8,.0f} samples/s"
            bar.advance(f"epoch {epoch + 1:3}/{args.epochs}  loss {loss.item():.4f}", speed)
        mean_loss = hvd.allreduce(epoch_loss / steps_per_epoch, name="epoch_loss", op=hvd.Average)
        history.losses.append(mean_loss.item())
        history.accuracies.append(accuracy(model, data))
        if (epoch + 1) % args.report_every == 0 or epoch + 1 == args.epochs:
            bar.say(
                f"epoch {epoch + 1:3}/{args.epochs}  loss {history.losses[-1]:.4f}  "
                f"test accuracy {history.accuracies[-1]:6.2%}  {speed}"
            )
    bar.finish()
    return history


@torch.no_grad()
def accuracy(model: nn.Module, data: Data) -> float:
    """On all test images, each rank looking at its share of them."""
    mine = slice(hvd.rank(), None, hvd.size())
    right = (model(data.test_images[mine]).argmax(dim=1) == data.test_labels[mine]).sum()
    counts = torch.tensor([int(right), len(data.test_labels[mine])], dtype=torch.int64)
    total = hvd.allreduce(counts, name="test_counts", op=hvd.Sum)
    return float(total[0]) / float(total[1])


# -- proof -------------------------------------------------------------------------------------------------------------


def train_alone(model: nn.Module, data: Data, args: argparse.Namespace, n_shards: int) -> nn.Module:
    """The same training in this process alone, each global batch cut into n_shards whose gradients are averaged."""
    optimizer = make_optimizer(model, args)
    for epoch in range(args.epochs):
        for indices in global_batches(len(data.labels), args.batch_size * hvd.size(), epoch, args.seed):
            sums: list[torch.Tensor] = []
            for shard in indices.chunk(n_shards):
                optimizer.zero_grad()
                loss_of(model, data, shard).backward()
                gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
                sums = [a + b for a, b in zip(sums, gradients, strict=True)] if sums else gradients
            for parameter, total in zip(model.parameters(), sums, strict=True):
                parameter.grad = total / n_shards
            optimizer.step()
    return model


def largest_difference(a: nn.Module, b: nn.Module) -> float:
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    return max((p.detach().double() - q.detach().double()).abs().max().item() for p, q in pairs)


def digest(model: nn.Module) -> str:
    bits = hashlib.sha256()
    for parameter in model.parameters():
        bits.update(parameter.detach().cpu().numpy().tobytes())
    return bits.hexdigest()


def prove(model: nn.Module, initial: nn.Module, data: Data, args: argparse.Namespace) -> bool:
    """Compare with one-process runs from the same start. True if the result is right.

    The bound is measured, not guessed: training alone in fp64 shows how far rounding moves the one-process fp32 run,
    and the distributed run, which only adds in another order, may differ from it by ROUNDING_MARGIN times that.
    """
    digests = hvd.allgather_object(digest(model))
    if hvd.rank() != 0:
        return True
    alone = train_alone(copy.deepcopy(initial), data, args, 1)
    exact = train_alone(copy.deepcopy(initial).double(), data, args, 1)
    same_order = train_alone(copy.deepcopy(initial), data, args, hvd.size())
    bound = ROUNDING_MARGIN * largest_difference(alone, exact)
    difference = largest_difference(model, alone)
    in_order = largest_difference(model, same_order)
    is_same, is_right = len(set(digests)) == 1, difference <= bound
    say(
        f"proof 1: the parameters of all {hvd.size()} ranks are {'the same bits' if is_same else 'DIFFERENT'} "
        f"(sha256 {digests[0][:16]}...)",
        f"proof 2: largest difference from one process over the same global batches: {difference:.3e}, "
        f"{'within' if is_right else 'BEYOND'} fp32 rounding (bound {bound:.3e})",
        f"proof 3: largest difference from one process adding the same shares in rank order: {in_order:.3e}"
        f"{' (bit for bit)' if in_order == 0 else ''}",
    )
    return is_same and is_right


def plot(history: History, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    epochs = range(1, len(history.losses) + 1)
    figure, left = plt.subplots(figsize=(7, 4), layout="constrained")
    left.plot(epochs, history.losses, color="tab:blue", label="training loss (left)")
    left.set(xlabel="epoch", ylabel="training loss", yscale="log", title=f"digits on {hvd.size()} processes")
    right = left.twinx()
    right.plot(epochs, [100 * a for a in history.accuracies], color="tab:orange", label="test accuracy (right)")
    right.set(ylabel="test accuracy, %", ylim=(min(80.0, 100 * min(history.accuracies)), 100))
    left.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["mlp", "cnn"], default="mlp")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cuda: the GPU of the local rank")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=32, help="per process")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--report-every", type=int, default=5, metavar="EPOCHS")
    parser.add_argument("--output-dir", type=Path, default=Path("out/digits"))
    return parser.parse_args()


def main() -> int:
    args = parse_args()
    torch.set_num_threads(1)
    hvd.init()
    if args.device == "cuda":
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    torch.manual_seed(args.seed + hvd.rank())  # differs on purpose: broadcast_parameters makes all start as rank 0
    data = load_data(args.seed).to(torch.device(args.device))
    if args.batch_size * hvd.size() > len(data.labels):
        raise SystemExit(f"a batch of {args.batch_size} on each of {hvd.size()} ranks is more than all the images")
    model = make_model(args.model).to(args.device)
    initial = copy.deepcopy(model)
    n_parameters = sum(p.numel() for p in model.parameters())
    say(f"{args.model} of {n_parameters:,} parameters on {hvd.size()} processes, {len(data.labels)} images")
    history = train(model, data, args)
    is_right = prove(model, initial, data, args)
    if hvd.rank() == 0:
        args.output_dir.mkdir(parents=True, exist_ok=True)
        plot(history, args.output_dir / "loss.png")
    say(
        f"test accuracy {history.accuracies[-1]:.2%} on {TEST_IMAGES} images",
        f"loss curve: {args.output_dir / 'loss.png'}",
    )
    hvd.shutdown()
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
