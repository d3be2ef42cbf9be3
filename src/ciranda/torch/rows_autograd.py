"""Gradients of alltoall and reducescatter.

Through alltoall, the gradient of a row goes back to the rank that the row came from. Through reducescatter, as in
Horovod, every rank gets all ranks' gradients of their shares, for op=Sum multiplied by the number of ranks.

The backward pass communicates, so all ranks must make it, and in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ciranda._ops import Average, Divisor, Sum
from ciranda.errors import NotSupportedError
from ciranda.process_sets import ProcessSet
from ciranda.torch import ops, rows

Tensor = torch.Tensor


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        op: int,
        process_set: ProcessSet,
        prescale: float,
        postscale: float,
        divisor: Divisor,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.op, ctx.process_set, ctx.factor = op, process_set, prescale * postscale
        return tuple(
            rows.grouped_reducescatter_async(tensors, name, op, process_set, prescale, postscale, divisor).wait()
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        if ctx.op not in (Average, Sum):
            raise NotSupportedError("reducescatter has a gradient for op=Average and op=Sum only")
        factor = ctx.factor * (ctx.process_set.size() if ctx.op == Sum else 1)
        scaled = [gradient * factor for gradient in gradients]
        return None, None, None, None, None, None, *ops.grouped_allgather(scaled, process_set=ctx.process_set)


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        splits: Sequence[rows.Splits | None] | None,
        name: str | None,
        process_set: ProcessSet,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        results = rows.grouped_alltoall_async(tensors, splits, name, process_set).wait()
        ctx.process_set = process_set
        ctx.counts = [counts for _, counts in results]
        ctx.mark_non_differentiable(*ctx.counts)
        return (*(output for output, _ in results), *ctx.counts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        of_outputs = gradients[: len(ctx.counts)]
        back = rows.grouped_alltoall(of_outputs, ctx.counts, process_set=ctx.process_set)
        return None, None, None, *(gradient for gradient, _ in back)


def grouped_reducescatter(
    tensors: Sequence[Tensor],
    name: str | None,
    op: int,
    process_set: ProcessSet,
    prescale: float,
    postscale: float,
    divisor: Divisor,
) -> list[Tensor]:
    """Differentiable `rows.grouped_reducescatter`."""
    return list(_Reducescatter.apply(name, op, process_set, prescale, postscale, divisor, *tensors))  # type: ignore[no-untyped-call]


def grouped_alltoall(
    tensors: Sequence[Tensor],
    splits: Sequence[rows.Splits | None] | None,
    name: str | None,
    process_set: ProcessSet,
) -> list[rows.Received]:
    """Differentiable `rows.grouped_alltoall`."""
    results = _Alltoall.apply(splits, name, process_set, *tensors)  # type: ignore[no-untyped-call]
    return list(zip(results[: len(tensors)], results[len(tensors) :], strict=True))
