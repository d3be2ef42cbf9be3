"""Smaller tensors on the wire. A compressor is a class with two static methods; write your own by subclassing."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class Compressor:
    """The interface: `decompress` undoes `compress`, given the context that it returned."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return what to communicate, and a context for `decompress`."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the tensor in the form that `compress` was given."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Leaves tensors as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return `tensor`."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return `tensor`."""
        return tensor


class FP16Compressor(Compressor):
    """Sends floating-point tensors as float16 (sums are formed in float32); leaves others as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype | None]:
        """Return the tensor as float16, and its dtype."""
        if not tensor.dtype.is_floating_point or tensor.dtype == torch.float16:
            return tensor, None
        return tensor.to(torch.float16), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: torch.dtype | None) -> torch.Tensor:
        """Return the tensor in dtype `ctx`."""
        return tensor if ctx is None else tensor.to(ctx)


class Compression:
    """The choices for the argument `compression`."""

    none = NoneCompressor
    fp16 = FP16Compressor
