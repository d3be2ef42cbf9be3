"""Two models trained side by side: even ranks share one, odd ranks the other; and the proof for both.

    ciranda run -np 4 python examples/process_sets.py

A process set is a group of ranks with collectives of its own. The two sets neither wait for each other nor mix.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from digits_task import Batch, accuracy, difference, global_batches, load, make_model, share
from torch import nn
from torch.nn.functional import cross_entropy

import ciranda.torch as circle

TOLERANCE = 2e-6


def train(model: nn.Module, optimizer: Any, data: Batch, rank: int, size: int) -> nn.Module:
    for batch in global_batches(data):
        images, labels = share(batch, rank, size)
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model


def sgd(model: nn.Module, is_even: bool) -> torch.optim.Optimizer:
    """The two models differ in how fast they learn."""
    return torch.optim.SGD(model.parameters(), lr=0.5 if is_even else 0.1)


def main() -> int:
    circle.init()
    data = load()
    # All ranks make all sets, in the same order.
    evens = circle.add_process_set(range(0, circle.size(), 2))
    odds = circle.add_process_set(range(1, circle.size(), 2))
    is_even = bool(evens.included())
    team = evens if is_even else odds

    model = make_model()
    optimizer = circle.DistributedOptimizer(
        sgd(model, is_even), named_parameters=model.named_parameters(), process_set=team
    )
    train(model, optimizer, data, team.rank(), team.size())

    alone = make_model()
    train(alone, sgd(alone, is_even), data, 0, 1)
    apart = circle.allgather_object((difference(model, alone), accuracy(model, data)))
    is_right = all(distance <= TOLERANCE for distance, _ in apart)
    if circle.rank() == 0:
        print(f"accuracy {apart[0][1]:.1%} and {apart[1][1]:.1%} on {circle.size()} processes")
        verdict = "same as one process" if is_right else "DIFFERENT from one process"
        print(f"both models {verdict}: {max(apart)[0]:.1e} apart, {TOLERANCE:.0e} allowed")
    circle.shutdown()
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
