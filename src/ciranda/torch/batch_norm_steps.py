"""What batch normalisation does with one rank's batch: normalise it, and in the backward pass sum up and distribute.

On GPUs each is one of torch's CUDA kernels, which reads and writes the batch once. Elsewhere it is some operators.
"""

from __future__ import annotations

from typing import Protocol

import torch

Tensor = torch.Tensor


class Steps(Protocol):
    """`mean` and `factor` (1 over the standard deviation) are those of all ranks, in the type of `wide(batch)`."""

    def normalize(
        self, batch: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, factor: Tensor
    ) -> Tensor:
        """Return (batch - mean) * factor * weight + bias."""

    def sums(self, gradient: Tensor, batch: Tensor, mean: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
        """Return by channel the sums of gradient and of gradient * (batch - mean)."""

    def gradient_of_batch(
        self,
        gradient: Tensor,
        batch: Tensor,
        weight: Tensor | None,
        mean: Tensor,
        factor: Tensor,
        sums: tuple[Tensor, Tensor],
        total: float,
    ) -> Tensor:
        """Return the gradient of the batch; `sums` are those over all ranks, of `total` values of each channel."""


def steps_for(batch: Tensor, total: float) -> Steps:
    """Return how to do it. The kernels count in 32 bits, and take no empty batch."""
    return _Kernels() if batch.is_cuda and batch.numel() > 0 and total < 2**31 else _Operators()


def by_channel(tensor: Tensor) -> list[int]:
    """Return the dimensions to sum over."""
    return [dimension for dimension in range(tensor.ndim) if dimension != 1]


def wide(tensor: Tensor) -> Tensor:
    """Return the values in float32 or wider."""
    return tensor.float() if tensor.dtype.itemsize < 4 else tensor


def variance_and_mean(batch: Tensor) -> tuple[Tensor, Tensor]:
    """Return them by channel, in float32 or wider. REQUIRES: the batch is not empty."""
    if batch.is_cuda and batch.dtype.itemsize < 4:  # this kernel widens what it reads, and writes no copy
        mean, variance = torch.batch_norm_update_stats(_dense(batch), None, None, 0.0)
        return variance, mean
    variance, mean = torch.var_mean(wide(batch), by_channel(batch), correction=0)
    return variance, mean


def _shaped(values: Tensor, like: Tensor) -> Tensor:
    """Return the values of the channels, in the type of `like` and in a shape that broadcasts to it."""
    return values.to(like.dtype).view(1, -1, *[1] * (like.ndim - 2))


class _Operators:
    def normalize(
        self, batch: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, factor: Tensor
    ) -> Tensor:
        values = wide(batch)
        scale = factor if weight is None else factor * weight.to(factor.dtype)
        normal = (values - _shaped(mean, values)) * _shaped(scale, values)
        return (normal if bias is None else normal + _shaped(bias, normal)).to(batch.dtype)

    def sums(self, gradient: Tensor, batch: Tensor, mean: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
        values, dimensions = wide(gradient), by_channel(gradient)
        centred = wide(batch) - _shaped(mean, values)
        return values.sum(dimensions), (values * centred).sum(dimensions)

    def gradient_of_batch(
        self,
        gradient: Tensor,
        batch: Tensor,
        weight: Tensor | None,
        mean: Tensor,
        factor: Tensor,
        sums: tuple[Tensor, Tensor],
        total: float,
    ) -> Tensor:
        values = wide(gradient)
        centred = wide(batch) - _shaped(mean, values)
        slope = factor.square() * sums[1] / total
        scale = factor if weight is None else factor * weight.to(factor.dtype)
        of_batch = values - _shaped(sums[0] / total, values) - centred * _shaped(slope, values)
        return (of_batch * _shaped(scale, values)).to(batch.dtype)


class _Kernels:
    def normalize(
        self, batch: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, factor: Tensor
    ) -> Tensor:
        return torch.batch_norm_elemt(_dense(batch), _as(mean, weight), _as(mean, bias), mean, factor, 0.0)

    def sums(self, gradient: Tensor, batch: Tensor, mean: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
        batch = _dense(batch)
        of_gradient, of_products, _, _ = torch.batch_norm_backward_reduce(
            _dense(gradient, batch), batch, mean, factor, None, True, False, False
        )
        return of_gradient, of_products

    def gradient_of_batch(
        self,
        gradient: Tensor,
        batch: Tensor,
        weight: Tensor | None,
        mean: Tensor,
        factor: Tensor,
        sums: tuple[Tensor, Tensor],
        total: float,
    ) -> Tensor:
        batch = _dense(batch)
        count = torch.full((1,), int(total), dtype=torch.int32, device=batch.device)
        return torch.batch_norm_backward_elemt(
            _dense(gradient, batch), batch, mean, factor, _as(mean, weight), sums[0], sums[1], count
        )


def _as(mean: Tensor, parameter: Tensor | None) -> Tensor | None:
    """Return it in the type of `mean`: beside batches of 16 bits the kernels take either, beside others only this."""
    return None if parameter is None else parameter.to(mean.dtype)


def _dense(tensor: Tensor, like: Tensor | None = None) -> Tensor:
    """Return it without gaps, in the order of `like`, or its own if the kernels have one for it."""
    like = tensor if like is None else like
    for channels_last in {4: [torch.channels_last], 5: [torch.channels_last_3d]}.get(like.ndim, []):
        if like.is_contiguous(memory_format=channels_last) and not like.is_contiguous():
            return tensor.contiguous(memory_format=channels_last)
    return tensor.contiguous()
