"""Training that goes on when a rank is killed, and the proof: rank 0 kills itself, the result is that of one process.

    ciranda run --elastic -np 3 --min-np 2 python examples/elastic.py

The other ranks keep their processes and go on from the last commit; a process that is started in rank 0's place joins:
the others wait for it with the last third of the steps. The picture shows the loss and the number of ranks over time.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from itertools import pairwise
from pathlib import Path

import torch
from digits_task import Batch, finish, global_batches, load, make_model, share
from torch import nn
from torch.nn.functional import cross_entropy

import ciranda.torch as hvd

TOLERANCE = 2e-5  # rounding, in a training whose shares of a batch have changed


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, mine: Batch) -> float:
    images, labels = mine
    optimizer.zero_grad()
    loss = cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


def draw(path: Path, history: list[tuple[float, float, int]]) -> None:
    from matplotlib import pyplot as plt

    seconds = [at - history[0][0] for at, _, _ in history]
    figure, (upper, lower) = plt.subplots(2, sharex=True, figsize=(7, 4), height_ratios=(2, 1))
    upper.plot(seconds, [loss for _, loss, _ in history])
    upper.set_ylabel("loss of rank 0")
    lower.step(seconds, [size for _, _, size in history], where="post")
    lower.set(ylabel="ranks", xlabel="seconds", ylim=(0, max(size for _, _, size in history) + 1))
    figure.tight_layout()
    figure.savefig(path)


def say(history: list[tuple[float, float, int]]) -> None:
    sizes = [history[0][2]]
    for _, _, size in history:
        if size != sizes[-1]:
            sizes.append(size)
    pauses = [later[0] - earlier[0] for earlier, later in pairwise(history)]
    print(f"{len(history)} steps; ranks: {', then '.join(map(str, sizes))}; longest pause {max(pauses):.2f} s")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--pause", type=float, default=0.03, help="seconds that each step waits, as for data")
    parser.add_argument("--wait", action=argparse.BooleanOptionalAction, default=True, help="for the new process")
    parser.add_argument("--output-dir", type=Path, default=Path("out"))
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)

    hvd.init()
    all_ranks = hvd.size()
    data = load(torch.device("cpu"))
    batches = list(global_batches(data, args.steps))
    model = make_model(torch.device("cpu"))
    optimizer = hvd.DistributedOptimizer(sgd(model), named_parameters=model.named_parameters())

    @hvd.elastic.run
    def train(state: hvd.elastic.TorchState) -> None:
        while state.step < args.steps:
            if state.step == args.steps // 3 and hvd.rank() == 0 and hvd.size() == all_ranks:
                os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory runs out
            while args.wait and state.step == args.steps * 2 // 3 and hvd.size() < all_ranks:
                time.sleep(0.1)
                state.commit()
            time.sleep(args.pause)
            loss = step(model, optimizer, share(batches[state.step], hvd.rank(), hvd.size()))
            state.history = [*state.history, (time.time(), loss, hvd.size())]
            state.step += 1
            state.commit()

    state = hvd.elastic.TorchState(model, optimizer, step=0, history=[])
    train(state)
    if hvd.rank() == 0:
        say(state.history)
        draw(args.output_dir / "elastic.png", state.history)
    alone = make_model(torch.device("cpu"))
    alone_optimizer = sgd(alone)
    for batch in batches:
        step(alone, alone_optimizer, batch)
    return finish(model, alone, data, TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
