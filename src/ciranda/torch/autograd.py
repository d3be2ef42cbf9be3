"""Gradients of the collectives.

Every rank has its own loss, and a gradient is that of the *sum of all ranks' losses* for allreduce: what reaches one
rank's result is summed over the ranks (averaged for op=Average), scaled by both factors, and is the gradient of every
rank's input; in a weighted average times the rank's weight over the sum of all. For Min and Max it goes to the elements
that were chosen, in equal parts where several were; the other operations have no gradient here. For allgather and
broadcast it is, as Horovod's, that of the *mean* of the ranks' losses.

The backward pass communicates, so all ranks must make it, and in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ciranda import _basics
from ciranda._ops import Average, Divisor, Max, Min, Sum
from ciranda.errors import NotSupportedError
from ciranda.process_sets import ProcessSet
from ciranda.torch import ops
from ciranda.torch.compression import Compression

Tensor = torch.Tensor


def _share_of_choice(tensor: Tensor, result: Tensor, process_set: ProcessSet) -> Tensor:
    """Return, for Min and Max, 1 / (number of ranks that had the chosen element) where this rank had it, else 0."""
    chosen = (tensor == result).to(tensor.dtype)
    return chosen / ops.allreduce(chosen, op=Sum, process_set=process_set).clamp(min=1)


@dataclass(frozen=True)
class Reduction:
    """What is asked of an allreduce, but for its tensors and name."""

    op: int
    prescale: float
    postscale: float
    process_set: ProcessSet
    weight: float | None
    divisor: Divisor

    def run(self, tensors: Sequence[Tensor], name: str | None) -> list[Tensor]:
        """Return the results, which have a gradient wherever autograd records."""
        return ops.grouped_allreduce(
            tensors,
            None,
            name,
            Compression.none,
            self.op,
            self.prescale,
            self.postscale,
            self.process_set,
            self.weight,
            self.divisor,
        )

    def share(self) -> float:
        """Return this rank's weight over the sum of all."""
        total = ops.allreduce(torch.tensor(self.weight, dtype=torch.float64), op=Sum, process_set=self.process_set)
        return (self.weight or 0.0) / float(total)


def _backward_allreduce(gradients: Sequence[Tensor], saved: Sequence[Tensor], call: Reduction) -> list[Tensor]:
    if call.op not in (Average, Sum, Min, Max):
        raise NotSupportedError(
            "allreduce has a gradient with op=Average, Sum, Min and Max only; detach its input or its result"
        )
    if call.weight is not None:
        share = call.share()
        return [total * share for total in replace(call, op=Sum, weight=None).run(gradients, None)]
    if call.op in (Average, Sum):
        return call.run(gradients, None)
    totals = replace(call, op=Sum).run(gradients, None)
    n = len(totals)
    return [
        total * _share_of_choice(tensor, result, call.process_set)
        for total, tensor, result in zip(totals, saved[:n], saved[n:], strict=True)
    ]


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str | None, call: Reduction, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.call = call
        results = tuple(call.run(tensors, name))
        if call.op in (Min, Max):
            # The factors may have changed what was compared, or turned the order around.
            inner = results
            if (call.prescale, call.postscale) != (1.0, 1.0):
                inner_op = call.op if call.prescale >= 0 else Min + Max - call.op
                inner = tuple(ops.grouped_allreduce(tensors, op=inner_op, process_set=call.process_set))
            ctx.save_for_backward(*tensors, *inner)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        return None, None, *_backward_allreduce(gradients, ctx.saved_tensors, ctx.call)


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
    def forward(
        ctx: Any, name: str | None, root_rank: int, process_set: ProcessSet, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.root_rank, ctx.process_set = root_rank, process_set
        return tuple(ops.grouped_broadcast(tensors, root_rank, name, process_set))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        reduced = ops.grouped_allreduce(gradients, op=Average, process_set=ctx.process_set)
        is_root = _basics.rank() == ctx.root_rank
        return None, None, None, *(each if is_root else torch.zeros_like(each) for each in reduced)


def grouped_allreduce(tensors: Sequence[Tensor], name: str | None, call: Reduction) -> list[Tensor]:
    """Differentiable `ops.grouped_allreduce`."""
    return list(_Allreduce.apply(name, call, *tensors))  # type: ignore[no-untyped-call]


def allgather(tensor: Tensor, name: str | None, process_set: ProcessSet) -> Tensor:
    """Differentiable `ops.allgather`."""
    return grouped_allgather([tensor], name, process_set)[0]


def grouped_allgather(tensors: Sequence[Tensor], name: str | None, process_set: ProcessSet) -> list[Tensor]:
    """Differentiable `ops.grouped_allgather`."""
    return list(_Allgather.apply(name, process_set, *tensors))  # type: ignore[no-untyped-call]


def broadcast(tensor: Tensor, root_rank: int, name: str | None, process_set: ProcessSet) -> Tensor:
    """Differentiable `ops.broadcast`."""
    return grouped_broadcast([tensor], root_rank, name, process_set)[0]


def grouped_broadcast(
    tensors: Sequence[Tensor], root_rank: int, name: str | None, process_set: ProcessSet
) -> list[Tensor]:
    """Differentiable `ops.grouped_broadcast`."""
    return list(_Broadcast.apply(name, root_rank, process_set, *tensors))  # type: ignore[no-untyped-call]
