"""Smaller arrays on the wire. A compressor is a class with two static methods; write your own by subclassing."""

from __future__ import annotations

from typing import Any

import numpy as np

from ciranda._frameworks.compression import Compressor, NoneCompressor

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class FP16Compressor(Compressor):
    """Sends float32 and float64 as float16: 11 bits of precision, overflow above 65504."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the array in float16, and its own dtype."""
        if tensor.dtype in (np.float32, np.float64):
            return tensor.astype(np.float16), tensor.dtype
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the array in dtype `ctx`."""
        return tensor if ctx is None else tensor.astype(ctx)


class Compression:
    """The choices for the argument `compression`."""

    none = NoneCompressor
    fp16 = FP16Compressor
