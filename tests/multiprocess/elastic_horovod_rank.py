"""A script for Horovod, unmodified but for its faults: rank 0 dies in a backward pass, later the last one in a commit.

python elastic_horovod_rank.py FOLDER: each rank that ends prints the digest of its model.
"""

import os
import signal
import sys
from pathlib import Path

import torch

import horovod.torch as hvd

FOLDER = Path(sys.argv[1])
hvd.init()
torch.manual_seed(os.getpid())
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size(), momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
sampler = hvd.elastic.ElasticSampler(range(48), shuffle=False)


def die_once(name):
    try:
        (FOLDER / name).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def on_reset():
    for group in optimizer.param_groups:
        group["lr"] = 0.01 * hvd.size()


@hvd.elastic.run
def train(state):
    while state.epoch < 6:
        while state.epoch in (3, 5) and hvd.size() < 3:
            state.commit()  # until the lost rank is back
        while state.sampler.processed_num < 48:
            mine = state.sampler.get_indices(0, 4)
            optimizer.zero_grad()
            loss = model(torch.tensor(mine, dtype=torch.float32)[:, None].repeat(1, 4).sin()).square().mean()
            if state.epoch == 1 and hvd.rank() == 0:
                model[0].weight.register_hook(lambda grad: die_once("first"))
            loss.backward()
            optimizer.step()
            state.sampler.record_batch(0, len(mine))
            state.sampler.reset()
            state.seen = state.seen + hvd.allreduce(torch.tensor(len(mine)), op=hvd.Sum).item()
            if state.epoch == 4 and hvd.rank() == hvd.size() - 1 and hvd.size() == 3:
                die_once("second")
        assert len(set(hvd.allgather_object(model[0].weight.sum().item()))) == 1
        state.epoch += 1
        state.sampler.set_epoch(state.epoch)
        state.commit()


state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0, seen=0, sampler=sampler)
state.register_reset_callbacks([on_reset])
train(state)
digest = sum(float(parameter.double().sum()) for parameter in model.parameters())
sys.stdout.write(f"{hvd.size()} {state.epoch} {state.seen} {digest:.15f}\n")
