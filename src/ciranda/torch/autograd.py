"""Gradients of the collectives.

Every rank has its own loss, and a gradient is that of the *sum of all ranks' losses* for allreduce: what reaches one
rank's result is summed over the ranks (averaged for op=Average), scaled by both factors, and is the gradient of every
rank's input. For Min and Max it goes to the elements that were chosen, in equal parts where several were; Product has
no gradient here. For allgather and broadcast it is, as Horovod's, that of the *mean* of the ranks' losses.

The backward pass communicates, so all ranks must make it, and in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ciranda import _basics
from ciranda._ops import Average, Max, Min, Product, Sum
from ciranda.errors import NotSupportedError
from ciranda.torch import ops
from ciranda.torch.compression import Compression

Tensor = torch.Tensor


def _share_of_choice(tensor: Tensor, result: Tensor) -> Tensor:
    """Return, for Min and Max, 1 / (number of ranks that had the chosen element) where this rank had it, else 0."""
    chosen = (tensor == result).to(tensor.dtype)
    return chosen / ops.allreduce(chosen, op=Sum).clamp(min=1)


def _backward_allreduce(
    gradients: Sequence[Tensor], saved: Sequence[Tensor], op: int, prescale: float, postscale: float
) -> list[Tensor]:
    if op == Product:
        raise NotSupportedError("allreduce with op=Product has no gradient; detach its input or its result")
    if op in (Average, Sum):
        return ops.grouped_allreduce(gradients, op=op, prescale_factor=prescale, postscale_factor=postscale)
    totals = ops.grouped_allreduce(gradients, op=Sum, prescale_factor=prescale, postscale_factor=postscale)
    n = len(totals)
    return [
        total * _share_of_choice(tensor, result)
        for total, tensor, result in zip(totals, saved[:n], saved[n:], strict=True)
    ]


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, name: str | None, op: int, prescale: float, postscale: float, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.call = (op, prescale, postscale)
        results = tuple(ops.grouped_allreduce(tensors, None, name, Compression.none, op, prescale, postscale))
        if op in (Min, Max):
            # The factors may have changed what was compared, or turned the order around.
            inner = results
            if (prescale, postscale) != (1.0, 1.0):
                inner = tuple(ops.grouped_allreduce(tensors, op=op if prescale >= 0 else Min + Max - op))
            ctx.save_for_backward(*tensors, *inner)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        inputs = _backward_allreduce(gradients, ctx.saved_tensors, *ctx.call)
        return None, None, None, None, *inputs


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str | None, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.sizes = [tensor.shape[0] if tensor.ndim else 0 for tensor in tensors]
        return tuple(ops.grouped_allgather(tensors, name))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        sizes = ops.allgather(torch.tensor([ctx.sizes], dtype=torch.int64))
        starts = sizes[: _basics.rank()].sum(dim=0).tolist()
        reduced = ops.grouped_allreduce(gradients, op=Average)
        mine = [
            gradient.narrow(0, start, size) for gradient, start, size in zip(reduced, starts, ctx.sizes, strict=True)
        ]
        return None, *mine


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str | None, root_rank: int, tensor: Tensor) -> Tensor:
        ctx.root_rank = root_rank
        return ops.broadcast(tensor, root_rank, name)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        reduced = ops.allreduce(gradient, op=Average)
        return None, None, reduced if _basics.rank() == ctx.root_rank else torch.zeros_like(reduced)


def allreduce(tensor: Tensor, name: str | None, op: int, prescale: float, postscale: float) -> Tensor:
    """Differentiable `ops.allreduce`."""
    return grouped_allreduce([tensor], name, op, prescale, postscale)[0]


def grouped_allreduce(
    tensors: Sequence[Tensor], name: str | None, op: int, prescale: float, postscale: float
) -> list[Tensor]:
    """Differentiable `ops.grouped_allreduce`."""
    return list(_Allreduce.apply(name, op, prescale, postscale, *tensors))  # type: ignore[no-untyped-call]


def allgather(tensor: Tensor, name: str | None) -> Tensor:
    """Differentiable `ops.allgather`."""
    return grouped_allgather([tensor], name)[0]


def grouped_allgather(tensors: Sequence[Tensor], name: str | None) -> list[Tensor]:
    """Differentiable `ops.grouped_allgather`."""
    return list(_Allgather.apply(name, *tensors))  # type: ignore[no-untyped-call]


def broadcast(tensor: Tensor, root_rank: int, name: str | None) -> Tensor:
    """Differentiable `ops.broadcast`."""
    result: Tensor = _Broadcast.apply(name, root_rank, tensor)  # type: ignore[no-untyped-call]
    return result
