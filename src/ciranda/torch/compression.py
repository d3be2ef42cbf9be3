"""Smaller tensors on the wire. A compressor is a class with two static methods; write your own by subclassing."""

from __future__ import annotations

import torch

from ciranda._frameworks.compression import Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class _CastCompressor(Compressor):
    """Sends floating-point tensors as `sent` (sums are computed in float32), and others unchanged."""

    sent: torch.dtype

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype | None]:
        """Return the tensor in the smaller dtype, and its own dtype."""
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
