"""Gradients of the collectives.

Every rank has its own loss, and a gradient is that of the *sum of all ranks' losses* for allreduce: what reaches one
rank's result is summed over the ranks (averaged for op=Average; with weights, times this rank's share of them), scaled
by both factors, and is the gradient of every rank's input. For Min and Max it goes to the elements that were chosen, in
equal parts where several were; the other operations have no gradient here. For allgather and broadcast it is, as
Horovod's, that of the *mean* of the ranks' losses.

The backward pass communicates, so all ranks must make it, and in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ciranda import _basics
from ciranda._ops import Average, Max, Min, Sum
from ciranda.errors import NotSupportedError
from ciranda.process_sets import ProcessSet
from ciranda.torch import ops
from ciranda.torch.compression import Compression

Tensor = torch.Tensor


def _share_of_choice(tensor: Tensor, result: Tensor, process_set: ProcessSet) -> Tensor:
    """Return, for Min and Max, 1 / (number of ranks that had the chosen element) where this rank had it, else 0."""
    chosen = (tensor == result).to(tensor.dtype)
    return chosen / ops.allreduce(chosen, op=Sum, process_set=process_set).clamp(min=1)


def _share_of_weights(weight: float, process_set: ProcessSet) -> float:
    weights = ops.allreduce(torch.tensor(weight, dtype=torch.float64), op=Sum, process_set=process_set)
    return weight / weights.item()


def _backward_allreduce(
    gradients: Sequence[Tensor],
    saved: Sequence[Tensor],
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
    weight: float | None,
) -> list[Tensor]:
    if op not in (Average, Sum, Min, Max):
        raise NotSupportedError(
            "allreduce has a gradient with op=Average, Sum, Min and Max only; detach its input or its result"
        )
    inner_op = op if op in (Average, Sum) and weight is None else Sum
    totals = ops.grouped_allreduce(
        gradients, op=inner_op, prescale_factor=prescale, postscale_factor=postscale, process_set=process_set
    )
    if weight is not None:
        share = _share_of_weights(weight, process_set)
        return [total * share for total in totals]
    if inner_op == op:
        return totals
    n = len(totals)
    return [
        total * _share_of_choice(tensor, result, process_set)
        for total, tensor, result in zip(totals, saved[:n], saved[n:], strict=True)
    ]


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        op: int,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
        weight: float | None,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.call = (op, prescale, postscale, process_set, weight)
        results = tuple(
            ops.grouped_allreduce(tensors, None, name, Compression.none, op, prescale, postscale, process_set, weight)
        )
        if op in (Min, Max):
            # The factors may have changed what was compared, or turned the order around.
            inner = results
            if (prescale, postscale) != (1.0, 1.0):
                inner_op = op if prescale >= 0 else Min + Max - op
                inner = tuple(ops.grouped_allreduce(tensors, op=inner_op, process_set=process_set))
            ctx.save_for_backward(*tensors, *inner)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        inputs = _backward_allreduce(gradients, ctx.saved_tensors, *ctx.call)
        return None, None, None, None, None, None, *inputs


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str | None, process_set: ProcessSet, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.process_set = process_set
        ctx.sizes = [tensor.shape[0] if tensor.ndim else 0 for tensor in tensors]
        return tuple(ops.grouped_allgather(tensors, name, process_set))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        process_set = ctx.process_set
        sizes = ops.allgather(torch.tensor([ctx.sizes], dtype=torch.int64), process_set=process_set)
        starts = sizes[: process_set.rank()].sum(dim=0).tolist()
        reduced = ops.grouped_allreduce(gradients, op=Average, process_set=process_set)
        mine = [
            gradient.narrow(0, start, size) for gradient, start, size in zip(reduced, starts, ctx.sizes, strict=True)
        ]
        return None, None, *mine


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str | None, root_rank: int, process_set: ProcessSet, tensor: Tensor) -> Tensor:
        ctx.root_rank, ctx.process_set = root_rank, process_set
        return ops.broadcast(tensor, root_rank, name, process_set)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        reduced = ops.allreduce(gradient, op=Average, process_set=ctx.process_set)
        return None, None, None, reduced if _basics.rank() == ctx.root_rank else torch.zeros_like(reduced)


def allreduce(
    tensor: Tensor,
    name: str | None,
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
    weight: float | None,
) -> Tensor:
    """Differentiable `ops.allreduce`."""
    return grouped_allreduce([tensor], name, op, prescale, postscale, process_set, weight)[0]


def grouped_allreduce(
    tensors: Sequence[Tensor],
    name: str | None,
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
    weight: float | None,
) -> list[Tensor]:
    """Differentiable `ops.grouped_allreduce`."""
    return list(_Allreduce.apply(name, op, prescale, postscale, process_set, weight, *tensors))  # type: ignore[no-untyped-call]


def allgather(tensor: Tensor, name: str | None, process_set: ProcessSet) -> Tensor:
    """Differentiable `ops.allgather`."""
    return grouped_allgather([tensor], name, process_set)[0]


def grouped_allgather(tensors: Sequence[Tensor], name: str | None, process_set: ProcessSet) -> list[Tensor]:
    """Differentiable `ops.grouped_allgather`."""
    return list(_Allgather.apply(name, process_set, *tensors))  # type: ignore[no-untyped-call]


def broadcast(tensor: Tensor, root_rank: int, name: str | None, process_set: ProcessSet) -> Tensor:
    """Differentiable `ops.broadcast`."""
    result: Tensor = _Broadcast.apply(name, root_rank, process_set, tensor)  # type: ignore[no-untyped-call]
    return result
