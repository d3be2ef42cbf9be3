"""Arrays in the memory of a GPU: what the engine is told of those of CuPy, by the CUDA array interface.

The interface (https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html) has address, shape and dtype.
CuPy knows the stream that the thread works in, and takes results by DLPack.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol

import numpy as np

from ciranda import _core
from ciranda.errors import InvalidArgumentError


class Library(Protocol):
    """A library with arrays on GPUs, as the engine asks it."""

    def current_stream(self, gpu: int) -> int:
        """Return the address of the stream to which this thread gives its work on the GPU; 0: the default stream."""

    def from_dlpack(self, array: Any) -> Any:
        """Return the library's array for an object that has DLPack's methods, without a copy."""


class _CuPy:
    def current_stream(self, gpu: int) -> int:
        return int(sys.modules["cupy"].cuda.get_current_stream(gpu).ptr)

    def from_dlpack(self, array: Any) -> Any:
        return sys.modules["cupy"].from_dlpack(array)


_CUPY: Library = _CuPy()


def is_of_cupy(array: object) -> bool:
    """Whether it is an array of CuPy, which is on a GPU."""
    return type(array).__module__.partition(".")[0] == "cupy" and hasattr(array, "__cuda_array_interface__")


def describe(array: Any) -> _core.TensorDescription:
    """Return what the engine reads of an array on a GPU.

    Raises:
        InvalidArgumentError: it is of another library than CuPy, not contiguous, or of a dtype that the engine does not
            have.
    """
    name = f"{type(array).__module__}.{type(array).__qualname__}"
    if not is_of_cupy(array):
        raise InvalidArgumentError(
            f"a {name} cannot be communicated from the memory of a GPU: give cupy.asarray(array), which shares its "
            "memory, or copy it to CPU memory first"
        )
    if not array.flags.c_contiguous:
        raise InvalidArgumentError(f"the {name} is not contiguous in C order; give cupy.ascontiguousarray(array)")
    interface = array.__cuda_array_interface__
    dtype = np.dtype(interface["typestr"])
    number = _core.DATA_TYPES.get(dtype.name)
    if number is None or not dtype.isnative:
        known = ", ".join(_core.DATA_TYPES)
        raise InvalidArgumentError(f"a {name} of dtype {dtype} cannot be combined; supported: {known}; cast it")
    address, _ = interface["data"]
    return _core.TensorDescription(address, tuple(interface["shape"]), number, array, _CUPY, int(array.device.id))
