"""Smaller arrays on the wire. A compressor is a class with two static methods; write your own by subclassing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ciranda._frameworks.compression import Compressor, NoneCompressor
from ciranda.jax.arrays import cast

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class _CastCompressor(Compressor):
    """Sends floating-point arrays as `sent` (sums are computed in float32), and others unchanged."""

    sent: Any

    @classmethod
    def compress(cls, tensor: Any) -> tuple[jax.Array, Any]:
        """Return the array in the smaller dtype, and its own one."""
        array = tensor if isinstance(tensor, jax.Array) else jnp.asarray(tensor)
        if not jnp.issubdtype(array.dtype, jnp.floating) or array.dtype.itemsize <= jnp.dtype(cls.sent).itemsize:
            return array, None
        return array.astype(cls.sent), array.dtype

    @staticmethod
    def decompress(tensor: jax.Array, ctx: Any) -> jax.Array:
        """Return the array in dtype `ctx`."""
        return tensor if ctx is None else cast(tensor, ctx)


class FP16Compressor(_CastCompressor):
    """Sends float32 and float64 as float16: 11 bits of precision, overflow above 65504."""

    sent = jnp.float16


class BF16Compressor(_CastCompressor):
    """Sends float32 and float64 as bfloat16: 8 bits of precision, the range of float32."""

    sent = jnp.bfloat16


class Compression:
    """The choices for the argument `compression`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
