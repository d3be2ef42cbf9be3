"""Two models trained side by side: even ranks share one, odd ranks the other; and the proof for both.

    ciranda run -np 4 python examples/process_sets.py

A process set is a group of ranks with collectives of its own. The two sets neither wait for each other nor mix.
"""

from __future__ import annotations

import sys

import torch
from digits_task import accuracy, difference, load, make_model, parse_device, train, use
from torch import nn

import ciranda.torch as hvd

TOLERANCE = 2e-6


def sgd(model: nn.Module, is_even: bool) -> torch.optim.Optimizer:
    """The two models differ in how fast they learn."""
    return torch.optim.SGD(model.parameters(), lr=0.5 if is_even else 0.1)


def main() -> int:
    name = parse_device()
    hvd.init()
    device = use(name)
    data = load(device)
    # All ranks make all sets, in the same order.
    evens = hvd.add_process_set(range(0, hvd.size(), 2))
    odds = hvd.add_process_set(range(1, hvd.size(), 2))
    is_even = bool(evens.included())
    team = evens if is_even else odds

    model = make_model(device)
    optimizer = hvd.DistributedOptimizer(
        sgd(model, is_even), named_parameters=model.named_parameters(), process_set=team
    )
    train(model, optimizer, data, team.rank(), team.size())

    alone = make_model(device)
    train(alone, sgd(alone, is_even), data)
    apart = hvd.allgather_object((difference(model, alone), accuracy(model, data)))
    is_right = all(distance <= TOLERANCE for distance, _ in apart)
    if hvd.rank() == 0:
        print(f"accuracy {apart[0][1]:.1%} and {apart[1][1]:.1%} on {hvd.size()} processes, {data[0].device}")
        verdict = "same as one process" if is_right else "DIFFERENT from one process"
        print(f"both models {verdict}: {max(apart)[0]:.1e} apart, {TOLERANCE:.0e} allowed")
    hvd.shutdown()
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
