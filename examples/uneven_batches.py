"""Ranks with different numbers of batches: those that are done join, the others go on; and the proof.

    ciranda run -np 2 python examples/uneven_batches.py

A rank that has joined adds nothing, and the average is over the ranks that still take part. `join()` returns the rank
that was last: it has made every step, so that its model is the one that all ranks end with.
"""

from __future__ import annotations

import sys

import torch
from digits_task import Batch, finish, load, make_model, parse_device, use
from torch import nn
from torch.nn.functional import cross_entropy

import ciranda.torch as hvd

IMAGES_PER_BATCH = 24


def n_batches(rank: int) -> int:
    """Rank 0 has the fewest."""
    return 20 + 12 * rank


def batch_of(data: Batch, rank: int, step: int) -> Batch:
    images, labels = data
    chosen = torch.randint(
        len(labels), (IMAGES_PER_BATCH,), generator=torch.Generator().manual_seed(1000 * rank + step)
    )
    return images[chosen], labels[chosen]


def train(data: Batch) -> nn.Module:
    model = make_model(data[0].device)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.3), named_parameters=model.named_parameters()
    )
    for step in range(n_batches(hvd.rank())):
        images, labels = batch_of(data, hvd.rank(), step)
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()
    last = hvd.join()
    hvd.broadcast_parameters(model.state_dict(), root_rank=last)
    return model


def train_alone(data: Batch) -> nn.Module:
    """At each step, the batches of the ranks that still have one, as one batch."""
    model = make_model(data[0].device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for step in range(n_batches(hvd.size() - 1)):
        taking_part = [rank for rank in range(hvd.size()) if step < n_batches(rank)]
        batches = [batch_of(data, rank, step) for rank in taking_part]
        images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model


def main() -> int:
    device = parse_device()
    hvd.init()
    data = load(use(device))
    return finish(train(data), train_alone(data), data)


if __name__ == "__main__":
    sys.exit(main())
