"""A plain Horovod script: ranks with different numbers of batches, and join().

horovodrun -np 2 python examples/horovod/uneven_batches.py
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
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    n_steps = 40 + 20 * hvd.rank()
    for step in range(n_steps):
        mine = torch.arange(step * hvd.size() + hvd.rank(), len(labels), 16 * hvd.size())
        optimizer.zero_grad()
        F.cross_entropy(model(images[mine]), labels[mine]).backward()
        optimizer.step()
    last = hvd.join()
    assert last == hvd.size() - 1, last
    hvd.broadcast_parameters(model.state_dict(), root_rank=last)

    accuracy = (model(images).argmax(dim=1) == labels).double().mean().item()
    if hvd.rank() == 0:
        print(f"accuracy {accuracy:.1%} on {hvd.size()} processes")
    assert accuracy > 0.85, "this training has not worked"
    assert len(set(hvd.allgather_object(accuracy))) == 1, "the ranks have different models"
    hvd.shutdown()


if __name__ == "__main__":
    main()
