"""What the small examples share: handwritten digits from scikit-learn, a model, and the check of a training.

The check is that of the whole project: many processes must end with the parameters of one process that saw the same
global batches. Each example's training is a function of the world's optimizer, so that it can be made in both ways.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import ciranda.torch as hvd

STEPS = 40
#: Images in a global batch: a multiple of 2, 3 and 4, so that as many ranks get equal shares.
GLOBAL_BATCH = 96

Batch = tuple[torch.Tensor, torch.Tensor]


def parse_device() -> str:
    """`--device cpu`, the default, or `--device cuda`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    return str(parser.parse_args().device)


def use(device: str) -> torch.device:
    """The device, after `init()`: of a host's GPUs, the one of this rank; ranks share them if there are too few."""
    if device == "cuda":
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    return torch.device(device)


def load(device: torch.device) -> Batch:
    """Images as fp32 (1797, 64) from 0 to 1, labels as int64 (1797,)."""
    digits = load_digits()
    images, labels = torch.tensor(digits.data / 16.0, dtype=torch.float32), torch.tensor(digits.target)
    return images.to(device), labels.to(device)


def global_batches(data: Batch, n_steps: int = STEPS) -> Iterator[Batch]:
    """The same on every rank."""
    images, labels = data
    generator = torch.Generator().manual_seed(1)
    for _ in range(n_steps):
        chosen = torch.randint(len(labels), (GLOBAL_BATCH,), generator=generator)
        yield images[chosen], labels[chosen]


def share(batch: Batch, rank: int, size: int) -> Batch:
    """The part of a batch that is one rank's: of 4 ranks, each gets a quarter."""
    images, labels = batch
    return images.chunk(size)[rank], labels.chunk(size)[rank]


def make_model(device: torch.device) -> nn.Module:
    """The same on every rank. Smooth all through, so that rounding does not decide which way a gradient goes."""
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10)).to(device)


def train(model: nn.Module, optimizer: Any, data: Batch, rank: int = 0, size: int = 1) -> nn.Module:
    """A step for each global batch, on this rank's share of it; alone, on all of it."""
    for batch in global_batches(data):
        images, labels = share(batch, rank, size)
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model


def train_here() -> str:
    """Train on this rank's share of the data, from init() on; the parameters' sha256, the same on all ranks."""
    torch.set_num_threads(1)
    hvd.init()
    device = torch.device("cpu")
    model = make_model(device)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    train(model, optimizer, load(device), hvd.rank(), hvd.size())
    bits = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    return hashlib.sha256(bits).hexdigest()


@torch.no_grad()
def accuracy(model: nn.Module, data: Batch) -> float:
    images, labels = data
    return (model(images).argmax(dim=1) == labels).double().mean().item()


def difference(model: nn.Module, alone: nn.Module) -> float:
    """The largest difference of two parameters, relative to the largest parameter."""
    pairs = list(zip(model.parameters(), alone.parameters(), strict=True))
    apart = max((a - b).abs().max().item() for a, b in pairs)
    return apart / max(b.abs().max().item() for _, b in pairs)


def finish(model: nn.Module, alone: nn.Module, data: Batch, tolerance: float = 2e-6) -> int:
    """Say how it went, on rank 0; the exit code: 0 if all ranks have the same model, and that of one process."""
    everyone = hvd.allgather_object([parameter.tolist() for parameter in model.parameters()])
    apart = difference(model, alone)
    is_right = all(other == everyone[0] for other in everyone) and apart <= tolerance
    if hvd.rank() == 0:
        print(f"accuracy {accuracy(model, data):.1%} on {hvd.size()} processes, {data[0].device}")
        print(f"{'same as' if is_right else 'DIFFERENT from'} one process: {apart:.1e} apart, {tolerance:.0e} allowed")
    hvd.shutdown()
    return 0 if is_right else 1
