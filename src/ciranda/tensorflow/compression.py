"""Smaller tensors on the wire. A compressor is a class with two static methods; write your own by subclassing."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ciranda._frameworks.compression import Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class _CastCompressor(Compressor):
    """Sends floating-point tensors as `sent` (sums are computed in float32), and others unchanged."""

    sent: tf.DType

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, tf.DType | None]:
        """Return the tensor in the smaller dtype, and its own one."""
        if not tensor.dtype.is_floating or tensor.dtype.size <= cls.sent.size:
            return tensor, None
        return tf.cast(tensor, cls.sent), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: tf.DType | None) -> Any:
        """Return the tensor in dtype `ctx`."""
        return tensor if ctx is None else tf.cast(tensor, ctx)


class FP16Compressor(_CastCompressor):
    """Sends float32 and float64 as float16: 11 bits of precision, overflow above 65504."""

    sent = tf.float16


class BF16Compressor(_CastCompressor):
    """Sends float32 and float64 as bfloat16: 8 bits of precision, the range of float32."""

    sent = tf.bfloat16


class Compression:
    """The choices for the argument `compression`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
