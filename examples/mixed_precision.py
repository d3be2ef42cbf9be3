"""Computes in bfloat16 by `torch.autocast`, sends gradients in half precision, and holds the result against fp32.

    ciranda run -np 2 python examples/mixed_precision.py

Parameters and optimizer stay in fp32. `Compression.fp16` halves what travels; the engine adds in fp32 and rounds once.
"""

from __future__ import annotations

import sys

import torch
from digits_task import STEPS, Batch, accuracy, finish, global_batches, load, make_model, parse_device, share, use
from torch import nn
from torch.nn.functional import cross_entropy

import ciranda.torch as hvd

# bfloat16 has 8 significant bits: a gradient is right to about 1 %, and so is where many of them lead.
TOLERANCE = 0.02


def train(data: Batch) -> nn.Module:
    model = make_model(data[0].device)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.5),
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16,
    )
    for batch in global_batches(data, 3 * STEPS):
        images, labels = share(batch, hvd.rank(), hvd.size())
        optimizer.zero_grad()
        with torch.autocast(images.device.type, dtype=torch.bfloat16):
            output = model(images)
            assert output.dtype == torch.bfloat16
            loss = cross_entropy(output, labels)
        loss.backward()
        optimizer.step()
    return model


def train_alone(data: Batch) -> nn.Module:
    """In fp32."""
    model = make_model(data[0].device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for images, labels in global_batches(data, 3 * STEPS):
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model


def main() -> int:
    device = parse_device()
    hvd.init()
    data = load(use(device))
    model, alone = train(data), train_alone(data)
    assert accuracy(model, data) > accuracy(alone, data) - 0.01
    return finish(model, alone, data, TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
