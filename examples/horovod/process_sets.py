"""A plain Horovod script: even and odd ranks train a model each.

horovodrun -np 4 python examples/horovod/process_sets.py
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
    hvd.init(process_sets="dynamic")
    if device == "cuda":
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    torch.manual_seed(42)
    digits = load_digits()
    images = torch.tensor(digits.data / 16.0, dtype=torch.float32).to(device)
    labels = torch.tensor(digits.target).to(device)

    even = hvd.add_process_set(range(0, hvd.size(), 2))
    odd = hvd.add_process_set(range(1, hvd.size(), 2))
    team = even if even.included() else odd
    assert even.included() != odd.included()

    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5 if team is even else 0.2)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), process_set=team)
    for step in range(120):
        mine = torch.arange(step * team.size() + team.rank(), len(labels), 16 * team.size())
        optimizer.zero_grad()
        F.cross_entropy(model(images[mine]), labels[mine]).backward()
        optimizer.step()

    accuracy = (model(images).argmax(dim=1) == labels).double().mean()
    team_mean = hvd.allreduce(accuracy, name="accuracy", process_set=team)
    assert team_mean == accuracy, "the ranks of one set have different models"
    everyone = hvd.allgather_object(accuracy.item())
    assert len(set(everyone)) == 2, "the two sets have the same model"
    assert min(everyone) > 0.85, "this training has not worked"
    if hvd.rank() == 0:
        print(f"accuracy {everyone[0]:.1%} and {everyone[1]:.1%} on {hvd.size()} processes")
    hvd.shutdown()


if __name__ == "__main__":
    main()
