"""Trains with torch's DistributedDataParallel over Ciranda, and proves that this is what one process would do.

    ciranda run -np 2 python examples/ddp.py
    torchrun --nproc-per-node 2 examples/ddp.py

Of a script that uses DistributedDataParallel already, two lines change: the import, and the name of the backend.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from digits_task import finish, load, make_model, parse_device, train, use
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ciranda.torch.distributed  # noqa: F401 - makes the backend known


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.5)


def main() -> int:
    name = parse_device()
    dist.init_process_group("ciranda")
    device = use(name)
    data = load(device)
    model = DistributedDataParallel(make_model(device), gradient_as_bucket_view=True)
    train(model, sgd(model), data, dist.get_rank(), dist.get_world_size())
    alone = make_model(device)
    train(alone, sgd(alone), data)
    dist.destroy_process_group()
    return finish(model.module, alone, data)


if __name__ == "__main__":
    sys.exit(main())
