"""A rank that trains by DistributedDataParallel over Ciranda: rank 1 is killed in a backward pass, later rank 0.

python elastic_ddp_rank.py FOLDER: each rank that ends compares its weights with those of one process.
"""

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from training import Share, flat, loss_of, mlp

import ciranda.torch as hvd
from ciranda.torch.distributed import ddp_comm_hook

FOLDER = Path(sys.argv[1])
STEPS = 9
FIRST, JOINING, SECOND = 2, 5, 6  # a rank is killed, all wait for its successor, another is killed

hvd.init()
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def die_once(rank: int) -> None:
    """Die as this rank, once in the job."""
    if hvd.rank() == rank:
        try:
            (FOLDER / f"killed-{rank}").touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def step(number: int, wrapped: torch.nn.Module, share: Share, killed: int | None) -> None:
    optimizer.zero_grad()
    loss = loss_of(wrapped, number, share)
    # The last layer's gradients are there, the first layer's are not: the pass is cut off between the buckets.
    hook = None if killed is None else model[0].weight.register_hook(lambda _: die_once(killed))
    loss.backward()
    if hook is not None:
        hook.remove()
    optimizer.step()


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    dist.init_process_group("ciranda")
    assert (dist.get_rank(), dist.get_world_size()) == (hvd.rank(), hvd.size())
    wrapped = DistributedDataParallel(model, bucket_cap_mb=0.0001, gradient_as_bucket_view=True)
    if state.step > 0:  # the second kill is in a pass with the hook
        wrapped.register_comm_hook(None, ddp_comm_hook)
    while state.step < STEPS:
        while state.step == JOINING and hvd.size() < 2:
            state.commit()
        killed = {FIRST: 1, SECOND: 0}.get(state.step)
        step(state.step, wrapped, Share(hvd.rank(), hvd.size()), killed)
        state.step += 1
        state.commit()


train(hvd.elastic.TorchState(model, optimizer, step=0))
trained = flat(model)
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for number in range(STEPS):
    step(number, model, Share(), None)
difference = float((trained - flat(model)).norm() / trained.norm())
sys.stdout.write(f"{trained.sum().item()!r} {'like one process' if difference < 1e-5 else difference}\n")
