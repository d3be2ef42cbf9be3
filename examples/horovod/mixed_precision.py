"""A plain Horovod script: bfloat16 by autocast, gradients compressed to fp16 on the way.

horovodrun -np 2 python examples/horovod/mixed_precision.py
"""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import horovod.torch as hvd


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    device = parser.parse_args().device
    hvd.init()
    if device == "cuda":
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    torch.manual_seed(42 + hvd.rank())
    digits = load_digits()
    images = torch.tensor(digits.data / 16.0, dtype=torch.float32).to(device)
    labels = torch.tensor(digits.target).to(device)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), compression=hvd.Compression.fp16
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    for step in range(60):
        mine = torch.arange(step * hvd.size() + hvd.rank(), len(labels), 16 * hvd.size())
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(images[mine]), labels[mine])
        loss.backward()
        optimizer.step()

    accuracy = (model(images).argmax(dim=1) == labels).double().mean().item()
    if hvd.rank() == 0:
        print(f"accuracy {accuracy:.1%} on {hvd.size()} processes")
    assert accuracy > 0.85, "this training has not worked"
    assert len(set(hvd.allgather_object(accuracy))) == 1, "the ranks have different models"
    hvd.shutdown()


if __name__ == "__main__":
    main()
