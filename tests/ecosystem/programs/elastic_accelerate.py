"""Training with Accelerate in an elastic job: rank 0 is killed once, and an Accelerator is made for each world.

python elastic_accelerate.py FOLDER: each rank that ends prints, for each epoch, how often each sample was used.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

import ciranda.torch as hvd
import ciranda.torch.distributed  # noqa: F401

MARK = Path(sys.argv[1], "killed")
N_EPOCHS, N_SAMPLES, BATCH = 3, 24, 4


@hvd.elastic.run
def train(state: Any) -> None:
    dist.init_process_group("ciranda")
    accelerator = Accelerator(cpu=True)
    samples = TensorDataset(torch.ones(N_SAMPLES, 2), torch.arange(N_SAMPLES))
    wrapped, steps, loader = accelerator.prepare(model, optimizer, DataLoader(samples, batch_size=BATCH))
    while state.epoch < N_EPOCHS:
        mine: list[int] = []
        for inputs, numbers in loader:
            if state.epoch == 1 and hvd.rank() == 0 and not MARK.exists():
                MARK.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            accelerator.backward(wrapped(inputs).square().mean())
            steps.step()
            steps.zero_grad()
            mine += numbers.tolist()
        used = Counter(number for part in hvd.allgather_object(mine) for number in part)
        state.used = [*state.used, [used[number] for number in range(N_SAMPLES)]]
        state.epoch += 1
        state.commit()


hvd.init()
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
state = hvd.elastic.TorchState(model, optimizer, epoch=0, used=[])
train(state)
sys.stdout.write(json.dumps(state.used) + "\n")
