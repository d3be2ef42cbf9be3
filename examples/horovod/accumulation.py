"""A plain Horovod script: gradients of several passes travel as one.

horovodrun -np 2 python examples/horovod/accumulation.py
"""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import horovod.torch as hvd

PASSES = 4


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
        optimizer, named_parameters=model.named_parameters(), backward_passes_per_step=PASSES
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    for step in range(60):
        optimizer.zero_grad()
        for number in range(PASSES):
            first = (step * PASSES + number) * hvd.size() + hvd.rank()
            mine = torch.arange(first, len(labels), 16 * hvd.size())
            loss = F.cross_entropy(model(images[mine]), labels[mine]) / PASSES
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
