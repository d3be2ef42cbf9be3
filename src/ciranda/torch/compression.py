"""Smaller tensors on the wire. A compressor is a class with two static methods; write your own by subclassing."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


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


class _CastCompressor(Compressor):
    """Sends floating-point tensors as `sent` (sums are formed in float32); leaves others as they are."""

    sent: torch.dtype

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype | None]:
        """Return the tensor in the smaller dtype, and its own one."""
        if not tensor.dtype.is_floating_point or tensor.dtype.itemsize <= cls.sent.itemsize:
            return tensor, None
        return tensor.to(cls.sent), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: torch.dtype | None) -> torch.Tensor:
        """Return the tensor in dtype `ctx`."""
        return tensor if ctx is None else tensor.to(ctx)


class FP16Compressor(_CastCompressor):
    """Sends float32 and float64 as float16: 11 bits of precision, overflow above 65504."""

    sent = torch.float16


class BF16Compressor(_CastCompressor):
    """Sends float32 and float64 as bfloat16: 8 bits of precision, the range of float32."""

    sent = torch.bfloat16


class Compression:
    """The choices for the argument `compression`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
