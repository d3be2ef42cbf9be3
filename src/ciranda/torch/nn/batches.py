"""The samples of all ranks for a sharded layer: gathered, and their gradients returned to their ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch.autograd.function import once_differentiable

from ciranda._frameworks.shards import Batches, Told
from ciranda._ops import Sum
from ciranda.process_sets import ProcessSet
from ciranda.torch import ops

Tensor = torch.Tensor


def gather(
    features: Tensor,
    labels: Tensor | None,
    n_features: int,
    name: str,
    process_set: ProcessSet,
    prepare: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Tensor, Batches]:
    """Return the prepared features of all ranks, their labels (if any), and the owner of each, by one collective.

    The gradient of a rank's features is that of the sum of all ranks' losses.

    Raises:
        InvalidArgumentError: on all ranks; the features or labels of one are invalid.
        MismatchError: on all ranks; they have features of different dtypes, or some have joined.
    """
    problem = 0
    if _are_features(features, n_features):
        prepared = prepare(features)
    else:
        prepared, problem = torch.empty(0, n_features, device="cpu"), 1
    mine = torch.empty(0, dtype=torch.int64, device="cpu")
    if labels is not None:
        if _are_labels(labels):
            mine = labels.detach().to(torch.int64)
        else:
            problem = problem or 2
    needs_gradient = prepared.requires_grad and torch.is_grad_enabled()
    told = Told(len(prepared), -1 if labels is None else len(mine), needs_gradient, problem)
    with torch.no_grad():
        sent = [prepared, mine, torch.tensor([told.row()], device="cpu")]
        everyones, all_labels, rows = ops.grouped_allgather(sent, name=name, process_set=process_set)
    n_ranks, place = cast(int, process_set.size()), cast(int, process_set.rank())
    batches = Batches(rows.tolist(), place, n_ranks, n_features)
    if batches.needs_gradient and torch.is_grad_enabled():
        # Also where only others want theirs: the backward pass is made by all.
        linked = prepared if prepared.requires_grad else prepared.detach().requires_grad_()
        everyones = _Gathered.apply(linked, everyones, batches, name, process_set)  # type: ignore[no-untyped-call]
    return everyones, all_labels, batches


def _are_features(features: Any, n_features: int) -> bool:
    return (
        isinstance(features, Tensor)
        and features.is_floating_point()
        and features.ndim == 2
        and features.shape[1] == n_features
    )


def _are_labels(labels: Any) -> bool:
    if not isinstance(labels, Tensor) or labels.ndim != 1:
        return False
    return not (labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool)


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, everyones: Tensor, batches: Batches, name: str, process_set: ProcessSet
    ) -> Tensor:
        ctx.dtype, ctx.batches, ctx.name, ctx.process_set = features.dtype, batches, name, process_set
        return everyones.view_as(everyones)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        batches: Batches = ctx.batches
        if not batches.are_even:
            # Every rank gets as many rows: those of short batches are filled up.
            padded = gradient.new_zeros(len(batches.sizes), batches.largest, gradient.shape[1])
            for rank, size in enumerate(batches.sizes):
                padded[rank, :size] = gradient[batches.part(rank)]
            gradient = padded.flatten(0, 1)
        mine = ops.reducescatter(gradient, op=Sum, name=f"{ctx.name}.gradient", process_set=ctx.process_set)
        n_mine = batches.mine.stop - batches.mine.start
        return mine[:n_mine].to(ctx.dtype), None, None, None, None
