"""Gradients of reduce, gather and scatter: those of the sum of all ranks' losses.

Where the root alone has a result, the other ranks have a tensor without elements in its place. Its backward is their
part of the backward pass, which communicates: all ranks must make it, and in the same order. Average and Sum have a
gradient, other ops have none. There are no second derivatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ciranda import _basics
from ciranda._ops import Average, Divisor, Sum
from ciranda.errors import NotSupportedError
from ciranda.process_sets import ProcessSet
from ciranda.torch import ops, rooted
from ciranda.torch.rows import Splits

Tensor = torch.Tensor


def _or_without_elements(results: list[Tensor] | None, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    if results is not None:
        return tuple(results)
    return tuple(tensor.new_empty((0, *tensor.shape[1:])) for tensor in tensors)


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        root_rank: int,
        op: int,
        name: str | None,
        process_set: ProcessSet,
        prescale: float,
        postscale: float,
        divisor: Divisor,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.call = {
            "op": op,
            "process_set": process_set,
            "prescale_factor": prescale,
            "postscale_factor": postscale,
            "divisor": divisor,
        }
        ctx.is_root = _basics.rank() == root_rank
        ctx.likes = [torch.empty_like(tensor, device="meta") for tensor in tensors]
        results = rooted.grouped_reduce(tensors, root_rank, op, name, process_set, prescale, postscale, divisor)
        return _or_without_elements(results, tensors)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator, no-untyped-call, unused-ignore]
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        if ctx.call["op"] not in (Average, Sum):
            raise NotSupportedError("reduce has a gradient for op=Average and op=Sum only")
        # As of an allreduce whose result nobody uses but the root.
        mine = list(gradients)
        if not ctx.is_root:
            mine = [torch.zeros_like(like, device="cpu") for like in ctx.likes]
        return *(None,) * 7, *ops.grouped_allreduce(mine, **ctx.call)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, root_rank: int, name: str | None, process_set: ProcessSet, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.root_rank, ctx.process_set = root_rank, process_set
        ctx.sizes = [tensor.shape[0] if tensor.ndim else 0 for tensor in tensors]
        return _or_without_elements(rooted.grouped_gather(tensors, root_rank, name, process_set), tensors)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator, no-untyped-call, unused-ignore]
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        place = {"root_rank": ctx.root_rank, "process_set": ctx.process_set}
        sizes = rooted.gather(torch.tensor([ctx.sizes], dtype=torch.int64), **place)
        splits = None if sizes is None else sizes.t().tolist()
        return None, None, None, *rooted.grouped_scatter(gradients, splits=splits, **place)


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        root_rank: int,
        splits: Sequence[Splits | None] | None,
        name: str | None,
        process_set: ProcessSet,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.root_rank, ctx.process_set = root_rank, process_set
        ctx.likes = [torch.empty_like(tensor, device="meta") for tensor in tensors]
        return tuple(rooted.grouped_scatter(tensors, root_rank, splits, name, process_set))

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator, no-untyped-call, unused-ignore]
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        back = rooted.grouped_gather(gradients, ctx.root_rank, process_set=ctx.process_set)
        if back is None:
            back = [torch.zeros_like(like, device="cpu") for like in ctx.likes]
        return None, None, None, None, *back


def grouped_reduce(
    tensors: Sequence[Tensor],
    root_rank: int,
    op: int,
    name: str | None,
    process_set: ProcessSet,
    prescale: float,
    postscale: float,
    divisor: Divisor,
) -> list[Tensor]:
    """Differentiable `rooted.grouped_reduce`, with tensors without elements where that returns None."""
    call = (root_rank, op, name, process_set, prescale, postscale, divisor)
    return list(_Reduce.apply(*call, *tensors))  # type: ignore[no-untyped-call]


def grouped_gather(
    tensors: Sequence[Tensor], root_rank: int, name: str | None, process_set: ProcessSet
) -> list[Tensor]:
    """Differentiable `rooted.grouped_gather`, with tensors without elements where that returns None."""
    return list(_Gather.apply(root_rank, name, process_set, *tensors))  # type: ignore[no-untyped-call]


def grouped_scatter(
    tensors: Sequence[Tensor],
    root_rank: int,
    splits: Sequence[Splits | None] | None,
    name: str | None,
    process_set: ProcessSet,
) -> list[Tensor]:
    """Differentiable `rooted.grouped_scatter`."""
    return list(_Scatter.apply(root_rank, splits, name, process_set, *tensors))  # type: ignore[no-untyped-call]
