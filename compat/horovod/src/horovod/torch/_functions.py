"""Functions of `horovod.torch` that leave something behind which Ciranda's own do not."""

from __future__ import annotations

import torch

import ciranda.torch as base


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """`ciranda.torch.broadcast_optimizer_state`. An optimizer that has made no step gets gradients of zeros.

    Horovod makes a step with zeros to have a state to receive; scripts see the gradients that it leaves.
    """
    is_new = not optimizer.state_dict()["state"]
    base.broadcast_optimizer_state(optimizer, root_rank, model)
    if is_new:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad and parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
