"""Clips the norm of the averaged gradient, and proves that this is what one process would do.

    ciranda run -np 2 python examples/gradient_clipping.py

The gradients must have arrived before they are clipped: `synchronize()` waits for them, and `skip_synchronize()` tells
`step()` that this has been done.
"""

from __future__ import annotations

import sys

import torch
from digits_task import Batch, finish, global_batches, load, make_model, parse_device, share, use
from torch import nn
from torch.nn.functional import cross_entropy

import ciranda.torch as hvd

MAX_NORM = 0.3


def train(data: Batch) -> nn.Module:
    model = make_model(data[0].device)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.5), named_parameters=model.named_parameters()
    )
    for batch in global_batches(data):
        images, labels = share(batch, hvd.rank(), hvd.size())
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        with optimizer.skip_synchronize():
            optimizer.step()
    return model


def train_alone(data: Batch) -> nn.Module:
    model = make_model(data[0].device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for images, labels in global_batches(data):
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
    return model


def main() -> int:
    device = parse_device()
    hvd.init()
    data = load(use(device))
    return finish(train(data), train_alone(data), data)


if __name__ == "__main__":
    sys.exit(main())
