"""A stand-in for CuPy on the fake driver: what Ciranda uses of it, and what its tests do."""

from __future__ import annotations

import ctypes as c
from types import SimpleNamespace
from typing import Any

import driver
import numpy as np
import numpy.typing as npt

from . import cuda

__version__ = "0.0.fake"


class ndarray:  # noqa: N801
    """An array in the memory of GPU 0."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, memory: Any = None, strides: Any = None) -> None:
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.strides = strides or _strides(self.shape, self.dtype.itemsize)
        self.size = int(np.prod(self.shape, dtype=np.int64))
        self.nbytes = self.size * self.dtype.itemsize
        self.device = SimpleNamespace(id=0)
        self._memory = memory or driver.Block(self.nbytes, cuda.current())

    @property
    def flags(self) -> Any:
        is_contiguous = self.size == 0 or all(
            length == 1 or own == usual
            for length, own, usual in zip(
                self.shape, self.strides, _strides(self.shape, self.dtype.itemsize), strict=True
            )
        )
        return SimpleNamespace(c_contiguous=is_contiguous)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        strides = None if self.flags.c_contiguous else self.strides
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._memory.address, False),
            "strides": strides,
            "stream": cuda.current() or 1,
            "version": 3,
        }

    def transpose(self) -> ndarray:
        return ndarray(self.shape[::-1], self.dtype, self._memory, self.strides[::-1])

    def view(self, dtype: Any) -> ndarray:
        assert np.dtype(dtype).itemsize == self.dtype.itemsize
        return ndarray(self.shape, dtype, self._memory, self.strides)

    def astype(self, dtype: Any, order: str = "K") -> ndarray:
        assert order == "C"
        return asarray(self.get().astype(dtype))

    def get(self) -> npt.NDArray[Any]:
        """Return a copy in host memory."""
        content = driver.fetch(self._memory.address, self.nbytes, cuda.current()).view(self.dtype)
        return np.lib.stride_tricks.as_strided(content, self.shape, self.strides).copy()

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")


def _strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides = []
    for length in reversed(shape):
        strides.append(itemsize)
        itemsize *= max(length, 1)
    return tuple(reversed(strides))


def asarray(content: Any) -> ndarray:
    content = np.array(content, order="C")
    array = ndarray(content.shape, content.dtype)
    driver.fill(array._memory.address, content, cuda.current())
    return array


def empty(shape: tuple[int, ...], dtype: Any) -> ndarray:
    return ndarray(shape, dtype)


def copyto(target: ndarray, source: ndarray) -> None:
    span = np.empty(target.nbytes, np.uint8).view(target.dtype)
    np.lib.stride_tricks.as_strided(span, target.shape, target.strides)[...] = source.get()
    driver.fill(target._memory.address, span, cuda.current())


def may_share_memory(one: ndarray, other: ndarray) -> bool:
    begin, other_begin = one._memory.address, other._memory.address
    return begin < other_begin + other.nbytes and other_begin < begin + one.nbytes


class _Device(c.Structure):
    _fields_ = (("type", c.c_int32), ("id", c.c_int32))


class _Type(c.Structure):
    _fields_ = (("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16))


class _Tensor(c.Structure):
    _fields_ = (
        ("data", c.c_void_p),
        ("device", _Device),
        ("ndim", c.c_int32),
        ("dtype", _Type),
        ("shape", c.POINTER(c.c_int64)),
        ("strides", c.POINTER(c.c_int64)),
        ("byte_offset", c.c_uint64),
    )


_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_pointer_of = c.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = c.c_void_p
_pointer_of.argtypes = (c.py_object, c.c_char_p)


class _Exported:
    """Memory of another library, kept by its capsule."""

    def __init__(self, capsule: Any, address: int) -> None:
        self._capsule = capsule
        self.address = address


def from_dlpack(exporter: Any) -> ndarray:
    assert exporter.__dlpack_device__() == (2, 0)
    capsule = exporter.__dlpack__()
    tensor = c.cast(_pointer_of(capsule, b"dltensor"), c.POINTER(_Tensor)).contents
    dtype = np.dtype(f"{_KINDS[tensor.dtype.code]}{tensor.dtype.bits // 8}")
    shape = tuple(tensor.shape[index] for index in range(tensor.ndim))
    return ndarray(shape, dtype, _Exported(capsule, (tensor.data or 0) + tensor.byte_offset))
