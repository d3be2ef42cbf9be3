"""Small operations on tensors of dygraph or of a program."""

from __future__ import annotations

from typing import Any

import paddle

from ciranda.paddle.tensors import is_tensor


def detached(x: Any) -> Any:
    """Return `x`, through which no gradient goes."""
    if is_tensor(x):
        return x.detach()
    copy = paddle.assign(x)
    copy.stop_gradient = True
    return copy


def times(x: Any, factor: float) -> Any:
    """Return `x` multiplied by a constant, which Paddle's own operators would keep in single precision."""
    if factor == 1:
        return x
    return x * paddle.full([1], factor, x.dtype)


def with_gradient_times(x: Any, factor: float) -> Any:
    """Return `x` itself, whose gradient is multiplied by a constant."""
    return x if factor == 1 else x + times(x - detached(x), factor - 1.0)


def is_floating(dtype: Any) -> bool:
    """Whether a dtype of Paddle is one of real floating-point numbers."""
    return dtype in (paddle.float16, paddle.bfloat16, paddle.float32, paddle.float64)


def is_whole(dtype: Any) -> bool:
    """Whether a dtype of Paddle is one of whole numbers."""
    return dtype in (paddle.uint8, paddle.int8, paddle.int16, paddle.int32, paddle.int64)


def wide_dtype(*dtypes: Any) -> Any:
    """Return what to compute in: float64 if any is that, else float32."""
    return paddle.float64 if paddle.float64 in dtypes else paddle.float32
