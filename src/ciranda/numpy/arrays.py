"""Conversion of arrays for the engine, and back: contiguous, native byte order, bfloat16 by address.

Arrays are NumPy's, or CuPy's, whose functions have the same names.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from ciranda import _core
from ciranda._collectives import Adapter
from ciranda._cuda_arrays import is_of_cupy
from ciranda.errors import InvalidArgumentError

Array = npt.NDArray[Any]

_ndarray = np.ndarray
_BFLOAT16 = _core.DATA_TYPES["bfloat16"]


def _module_of(array: Array) -> Any:
    return np if isinstance(array, _ndarray) else sys.modules["cupy"]


def _is_bfloat16(array: Array) -> bool:
    # The type comes from the package ml_dtypes; to NumPy it is a "void" type with a name.
    return array.dtype.kind == "V" and array.dtype.name == "bfloat16"


def for_engine(array: Array) -> Array | _core.TensorDescription:
    """Return the engine's argument: the contiguous array itself, or a description of it."""
    if array.dtype.kind == "V" and _is_bfloat16(array):
        return _core.TensorDescription(array.ctypes.data, array.shape, _BFLOAT16, array)
    return array


def readable(tensor: npt.ArrayLike) -> Array:
    """Return `tensor` as a C-contiguous array of native byte order: itself if it is one, else a copy."""
    array = tensor if type(tensor) is _ndarray else _unmasked(tensor)
    if array.flags.c_contiguous and array.dtype.isnative:
        return array
    return array.astype(array.dtype.newbyteorder("="), order="C")


def _unmasked(tensor: npt.ArrayLike) -> Array:
    """Return an array of whatever NumPy takes, but what would lose its mask in silence. One of CuPy stays."""
    masked = sys.modules.get("numpy.ma")  # which is slow to import, and whoever has a masked array has imported it
    if masked is not None and isinstance(tensor, masked.MaskedArray):
        raise InvalidArgumentError("masked arrays cannot be communicated: send tensor.filled(...), or data and mask")
    return tensor if is_of_cupy(tensor) else np.asarray(tensor)  # type: ignore[return-value]


def writable(tensor: Array) -> Array:
    """Return an array for the engine to work on in place: `tensor` if possible, else a copy to copy back later."""
    if type(tensor) is _ndarray and tensor.flags.carray and tensor.dtype.isnative:  # nearly always
        return tensor
    if is_of_cupy(tensor):
        return readable(tensor)
    if not isinstance(tensor, _ndarray):
        raise InvalidArgumentError(f"an in-place operation needs a numpy array, got {type(tensor).__name__}")
    if not tensor.flags.writeable:
        raise InvalidArgumentError("an in-place operation needs a writable array; this one is read-only")
    return readable(tensor)


def bring_back(work: Array, tensor: Array) -> Array:
    """Copy the result into the caller's array, if the engine worked on a copy. Returns the caller's array."""
    if work is not tensor:
        _module_of(tensor).copyto(tensor, work)
    return tensor


def like_input(output: Array, array: Array) -> Array:
    """Give an array that the engine allocated the dtype of its input."""
    return output.view(array.dtype)


def like(array: Array) -> Array:
    """Return a new array of the same shape and dtype."""
    result: Array = _module_of(array).empty(array.shape, array.dtype)
    return result


def share_memory(one: Array, other: Array) -> bool:
    """Whether two arrays may share memory."""
    if _module_of(one) is not _module_of(other):
        return False
    return bool(_module_of(one).may_share_memory(one, other))


def _counts(numbers: Any, splits: npt.ArrayLike | None) -> Array:
    received: Array = numbers
    return received if splits is None else received.astype(np.asarray(splits).dtype, copy=False)


ADAPTER: Adapter[npt.ArrayLike, Array, npt.ArrayLike] = Adapter(
    module="ciranda.numpy.ops",
    types={"Given": "npt.ArrayLike", "Tensor": "Array", "Splits": "npt.ArrayLike"},
    namespace={"npt": npt, "Array": Array},
    readable=readable,
    writable=writable,
    for_engine=for_engine,
    like=like,
    bring_back=bring_back,
    from_engine=like_input,
    share_memory=share_memory,
    splits=np.asarray,
    counts=_counts,
)
