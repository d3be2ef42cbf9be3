"""The functions for synchronized batch normalisation that torch has for CUDA alone.

A kernel of the fake GPU is torch's own for the CPU, and so are these.
"""

from __future__ import annotations

import torch

Tensor = torch.Tensor


def install() -> torch.library.Library:
    """Returns what keeps them there."""
    library = torch.library.Library("aten", "IMPL")
    for function in (batch_norm_elemt, batch_norm_backward_reduce, batch_norm_backward_elemt):
        library.impl(function.__name__, function, "CPU")
    return library


def batch_norm_elemt(
    batch: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    _check(batch, mean, invstd, weight, bias)
    slope = invstd if weight is None else invstd * weight
    normal = (batch.to(mean.dtype) - _over(mean, batch)) * _over(slope, batch)
    return (normal if bias is None else normal + _over(bias, batch)).to(batch.dtype)


def batch_norm_backward_reduce(
    gradient: Tensor,
    batch: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    of_batch: bool,
    of_weight: bool,
    of_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _check(batch, mean, invstd, weight)
    assert gradient.stride() == batch.stride()
    assert of_batch
    assert not of_weight
    assert not of_bias
    others = [dimension for dimension in range(batch.ndim) if dimension != 1]
    wide = gradient.to(mean.dtype)
    of_products = (wide * (batch.to(mean.dtype) - _over(mean, batch))).sum(others)
    return wide.sum(others), of_products, mean.new_empty(0), mean.new_empty(0)


def batch_norm_backward_elemt(
    gradient: Tensor,
    batch: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    count: Tensor,
) -> Tensor:
    _check(batch, mean, invstd, weight, sum_dy, sum_dy_xmu)
    assert gradient.stride() == batch.stride()
    assert count.dtype == torch.int32
    total = count.sum()
    slope = invstd.square() * sum_dy_xmu / total
    centred = batch.to(mean.dtype) - _over(mean, batch)
    moved = gradient.to(mean.dtype) - _over(sum_dy / total, batch) - centred * _over(slope, batch)
    return (moved * _over(invstd if weight is None else invstd * weight, batch)).to(batch.dtype)


def _over(values: Tensor, batch: Tensor) -> Tensor:
    return values.view(1, -1, *[1] * (batch.ndim - 2))


def _check(batch: Tensor, mean: Tensor, *others: Tensor | None) -> None:
    """Raises AssertionError for what the kernels of CUDA do not take, or would not be given by torch itself."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    is_dense = batch.is_contiguous() or (
        batch.ndim in formats and batch.is_contiguous(memory_format=formats[batch.ndim])
    )
    assert is_dense
    assert batch.numel() > 0
    assert all(
        each.dtype == torch.promote_types(batch.dtype, torch.float32) for each in (mean, *others) if each is not None
    )
