"""Trains with torch's DistributedDataParallel over Ciranda, and proves that this is what one process would do.

    ciranda run -np 2 python examples/ddp.py
    torchrun --nproc-per-node 2 examples/ddp.py

Of a script that uses DistributedDataParallel already, two lines change: the import, and the name of the backend.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from digits_task import Batch, finish, global_batches, load, make_model, share
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import ciranda.torch.distributed  # noqa: F401 - makes the backend known


def train(data: Batch) -> nn.Module:
    model = DistributedDataParallel(make_model(), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for batch in global_batches(data):
        images, labels = share(batch, dist.get_rank(), dist.get_world_size())
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()
    trained: nn.Module = model.module
    return trained


def train_alone(data: Batch) -> nn.Module:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for images, labels in global_batches(data):
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model


def main() -> int:
    dist.init_process_group("ciranda")
    data = load()
    model, alone = train(data), train_alone(data)
    dist.destroy_process_group()
    return finish(model, alone, data)


if __name__ == "__main__":
    sys.exit(main())
