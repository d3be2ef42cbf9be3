"""Accumulates gradients over several backward passes before they travel, and proves the result.

    ciranda run -np 2 python examples/accumulation.py

With `backward_passes_per_step=4` the ranks talk once in four passes. Gradients add up over the passes, so each loss is
divided by their number to get the average.
"""

from __future__ import annotations

import sys

import torch
from digits_task import Batch, finish, global_batches, load, make_model, parse_device, share, use
from torch import nn
from torch.nn.functional import cross_entropy

import ciranda.torch as hvd

PASSES = 4


def train(data: Batch) -> nn.Module:
    model = make_model(data[0].device)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9),
        named_parameters=model.named_parameters(),
        backward_passes_per_step=PASSES,
    )
    for batch in global_batches(data):
        mine = share(batch, hvd.rank(), hvd.size())
        optimizer.zero_grad()
        for number in range(PASSES):
            images, labels = share(mine, number, PASSES)
            (cross_entropy(model(images), labels) / PASSES).backward()
        optimizer.step()
    return model


def train_alone(data: Batch) -> nn.Module:
    model = make_model(data[0].device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    for images, labels in global_batches(data):
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
