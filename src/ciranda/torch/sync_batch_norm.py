"""Batch normalisation over the batches of all ranks, as if they were one.

Each rank sends the others its number of values of each channel, their mean and their sum of squared deviations; from
these all compute the same statistics. The backward pass adds up two sums over all ranks. All of it is sent as float64.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from ciranda._ops import Sum
from ciranda.errors import InvalidArgumentError
from ciranda.process_sets import ProcessSet, global_process_set
from ciranda.torch import ops
from ciranda.torch.batch_norm_steps import steps_for, variance_and_mean

Tensor = torch.Tensor


def _statistics(batch: Tensor, process_set: ProcessSet) -> tuple[float, Tensor, Tensor]:
    """Return the number of values of each channel in all ranks' batches, their means and (biased) variances."""
    n_channels = batch.shape[1]
    count = batch.numel() // max(n_channels, 1)
    number = torch.full((1, 1), count, dtype=torch.float64, device="cpu")  # for the host, which waits for no GPU
    mine = torch.zeros(1, 2 * n_channels + 1, dtype=torch.float64, device=batch.device)
    mine[0, -1].fill_(count)
    if count > 0:
        variance, mean = variance_and_mean(batch)
        mine[0, :n_channels] = mean
        mine[0, n_channels:-1] = variance.double() * count
    numbers, everyones = ops.grouped_allgather([number, mine], process_set=process_set)
    means, deviations, counts = everyones[:, :n_channels], everyones[:, n_channels:-1], everyones[:, -1:]
    total = float(numbers.sum())
    if total <= 1:
        raise InvalidArgumentError(
            f"SyncBatchNorm needs more than one value per channel to train; all ranks together have {total:.0f}, this "
            f"one's input has shape {tuple(batch.shape)}"
        )
    mean = (counts * means).sum(dim=0) / total
    squares = deviations.sum(dim=0) + (counts * (means - mean).square()).sum(dim=0)
    return total, mean, squares / total


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        batch: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        total: float,
        mean: Tensor,
        factor: Tensor,
        process_set: ProcessSet,
    ) -> Tensor:
        """Return (batch - mean) * factor * weight + bias."""
        ctx.total, ctx.process_set = total, process_set
        ctx.type_of_bias = None if bias is None else bias.dtype
        type_of_sums = torch.promote_types(batch.dtype, torch.float32)
        mean, factor = mean.to(type_of_sums), factor.to(type_of_sums)
        ctx.save_for_backward(batch, weight, mean, factor)
        return steps_for(batch, total).normalize(batch, weight, bias, mean, factor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        batch, weight, mean, factor = ctx.saved_tensors
        steps = steps_for(batch, ctx.total)
        mine = torch.stack(steps.sums(gradient, batch, mean, factor))
        of_weight = None if weight is None else (mine[1] * factor).to(weight.dtype)
        of_bias = None if ctx.type_of_bias is None else mine[0].to(ctx.type_of_bias)
        sums = ops.allreduce(mine.double(), op=Sum, process_set=ctx.process_set).to(mine.dtype)
        of_batch = steps.gradient_of_batch(gradient, batch, weight, mean, factor, (sums[0], sums[1]), ctx.total)
        return of_batch, of_weight, of_bias, None, None, None, None


class SyncBatchNorm(_BatchNorm):
    """`torch.nn.BatchNorm1d/2d/3d` over the batches of all ranks, on CPU tensors as well.

    Forward and backward, it equals BatchNorm on the joined batches of all ranks, which may differ in size, or be empty
    on some ranks. In evaluation it is BatchNorm. All ranks must make the same calls, backward ones included; a rank's
    gradients are, as with allreduce, those of the sum of all ranks' losses.

    Args:
        num_features: C, for inputs of shape [N, C] or [N, C, ...] and of a floating-point dtype.
        eps: added to the variance.
        momentum: the share of a new batch's statistics in the running ones; None for their plain mean.
        affine: whether each channel has a weight and a bias.
        track_running_stats: whether to keep running statistics, for evaluation.
        process_set: the ranks whose batches are joined.

    Raises:
        InvalidArgumentError: (a ValueError) the input has fewer than two dimensions, or a training batch has only one
            value for a channel on all ranks together.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.process_set = process_set

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise InvalidArgumentError(f"SyncBatchNorm takes inputs of two or more dimensions; got {input.ndim}")
        if input.shape[1] != self.num_features:
            raise InvalidArgumentError(
                f"SyncBatchNorm has {self.num_features} channels, but the input of shape {tuple(input.shape)} has "
                f"{input.shape[1]}"
            )

    def forward(self, input: Tensor) -> Tensor:
        """Return `input`, normalised; of the same shape and dtype."""
        self._check_input_dim(input)
        if not self.training:
            return super().forward(input)
        with torch.no_grad():
            total, mean, variance = _statistics(input, self.process_set)
            self._track(total, mean, variance)
            factor = (variance + self.eps).rsqrt()
        apply = _Normalize.apply
        return cast(Tensor, apply(input, self.weight, self.bias, total, mean, factor, self.process_set))  # type: ignore[no-untyped-call]

    def _track(self, total: float, mean: Tensor, variance: Tensor) -> None:
        """Update the running statistics with a batch."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        share = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_((variance * (total / (total - 1))).to(self.running_var.dtype), share)

    @classmethod
    def convert_sync_batchnorm(
        cls, module: torch.nn.Module, process_set: ProcessSet = global_process_set
    ) -> torch.nn.Module:
        """Return `module` with every BatchNorm in it replaced by a SyncBatchNorm of the same parameters and state."""
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            converted = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_set,
            )
            converted.__dict__.update({key: vars(module)[key] for key in ("training", "_parameters", "_buffers")})
            return converted
        for name, child in module.named_children():
            setattr(module, name, cls.convert_sync_batchnorm(child, process_set))
        return module
