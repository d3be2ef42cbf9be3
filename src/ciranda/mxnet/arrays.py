"""Conversion of MXNet's arrays to the engine's tensors, and back."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call
from mxnet.ndarray import NDArray

from ciranda import _core
from ciranda.errors import InvalidArgumentError
from ciranda.mxnet._plugin import address_of, held, lend

#: The number of rows for each rank: an array, or anything that `numpy.asarray` takes.
Splits = Any

_DENSE = "default"
#: Results of at least this many bytes are not copied. A smaller copy takes less time than lending memory.
_LENT_FROM = 1 << 16
#: The context of MXNet's arrays in memory that is lent to it.
_LENT_CONTEXT = mx.cpu(0)
_IS_BFLOAT16 = np.dtype([("bfloat16", np.uint16)])


def checked(tensors: Sequence[Any]) -> list[NDArray]:
    """Return the arrays as a list. Raises InvalidArgumentError for other types."""
    if isinstance(tensors, NDArray) or not isinstance(tensors, (list, tuple)):
        raise InvalidArgumentError(f"a grouped call needs a list of arrays, got {type(tensors).__name__}")
    wrong = [tensor for tensor in tensors if not isinstance(tensor, NDArray)]
    if wrong:
        raise InvalidArgumentError(
            f"ciranda.mxnet takes arrays of MXNet, got {type(wrong[0]).__name__}: mx.nd.array(...) makes one"
        )
    return list(tensors)


@contextmanager
def _numpy_shapes() -> Iterator[None]:
    """Let shapes have no dimensions, or dimensions of size 0, on this thread.

    `mx.util.np_shape()` raises at its end if NumPy's arrays are active, but its shapes were not.
    """
    before, replaced = ctypes.c_int(), ctypes.c_int()
    check_call(_LIB.MXSetIsNumpyShape(ctypes.c_int(1), ctypes.byref(before)))
    try:
        yield
    finally:
        if not before.value:
            check_call(_LIB.MXSetIsNumpyShape(before, ctypes.byref(replaced)))


def empty(shape: tuple[int, ...], like: NDArray) -> NDArray:
    """Return a new array of that shape, otherwise like `like`."""
    maker = mx.np if isinstance(like, mx.np.ndarray) else mx.nd
    if 0 in shape or shape == ():
        with _numpy_shapes():
            return maker.empty(shape, dtype=like.dtype, ctx=like.ctx)
    return maker.empty(shape, dtype=like.dtype, ctx=like.ctx)


def shape_of(array: NDArray) -> tuple[int, ...]:
    """Return the shape, also of an array without elements."""
    with _numpy_shapes():
        return tuple(array.shape)


def number_of(dtype: Any) -> int:
    """Return the engine's number of one of MXNet's dtypes."""
    name = "bfloat16" if dtype == _IS_BFLOAT16 else np.dtype(dtype).name
    if name not in _core.DATA_TYPES:
        raise InvalidArgumentError(f"an array of dtype {name} cannot be communicated")
    return _core.DATA_TYPES[name]


@contextmanager
def described(arrays: Sequence[NDArray]) -> Iterator[list[_core.TensorDescription]]:
    """Wait for arrays, and yield descriptions by address, which keep them alive; nothing writes them meanwhile."""
    for array in arrays:
        _require_dense(array)
    with held(arrays) as addresses:
        yield [
            _core.TensorDescription(address, shape_of(array), number_of(array.dtype), array)
            for address, array in zip(addresses, arrays, strict=True)
        ]


def _require_dense(array: NDArray) -> None:
    if array.stype != _DENSE:
        raise InvalidArgumentError(
            f"an array of storage type {array.stype} was given to a function of dense ones: array.tostype('default')"
        )
    if array.ctx.device_type == "gpu":
        raise InvalidArgumentError(
            f"the array is on {array.ctx}, but only arrays in the memory of the CPU are supported: "
            "array.as_in_context(mx.cpu())"
        )


def from_engine(output: np.ndarray[Any, Any], like: NDArray) -> NDArray:
    """Return the engine's output as an array of the dtype and context of its input, which may be its memory."""
    is_lent = output.nbytes >= _LENT_FROM and like.ctx == _LENT_CONTEXT
    if is_lent and (handle := lend(output, number_of(like.dtype))) is not None:
        return mx.np.ndarray(handle=handle) if isinstance(like, mx.np.ndarray) else mx.nd.NDArray(handle=handle)
    made = empty(output.shape, like)
    if math.prod(output.shape):
        ctypes.memmove(address_of(made), output.ctypes.data, output.nbytes)
    return made


def whole_numbers(splits: Splits) -> list[int]:
    """Return splits as the engine takes them. Raises InvalidArgumentError unless they are whole numbers."""
    numbers = splits.asnumpy() if isinstance(splits, NDArray) else np.asarray(splits)
    is_whole = numbers.dtype.kind in "iu" and numbers.ndim == 1 and numbers.size
    if not is_whole:
        raise InvalidArgumentError(
            f"splits must be whole numbers, one for each rank; got {numbers.dtype} of shape {list(numbers.shape)}"
        )
    return [int(number) for number in numbers]
