"""The fake driver from Python: memory of its device, streams and events, by ctypes. See tests/fakes/cuda.hpp."""

from __future__ import annotations

import ctypes as c
import threading
from functools import cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

_NON_BLOCKING = 1


@cache
def _library() -> c.CDLL:
    library = c.CDLL("libcuda.so.1")
    library.fake_cuda_n_calls.restype = c.c_uint64  # the real one has no such function
    return library


def call(function: str, *arguments: Any) -> None:
    """Call a function of the driver in the primary context of GPU 0, and raise if it fails."""
    enter()
    _check(function, getattr(_library(), function)(*arguments))


def _check(function: str, error: int) -> None:
    if error:
        raise RuntimeError(f"{function}: CUDA error {error}")


_entered = threading.local()


@cache
def _context() -> c.c_void_p:
    context = c.c_void_p()
    _check("cuInit", _library().cuInit(0))
    _check("cuDevicePrimaryCtxRetain", _library().cuDevicePrimaryCtxRetain(c.byref(context), 0))
    return context


def enter() -> None:
    """Make the primary context of GPU 0 the thread's."""
    if not hasattr(_entered, "done"):
        _check("cuCtxSetCurrent", _library().cuCtxSetCurrent(_context()))
        _entered.done = True


def new_stream() -> int:
    """Return a new non-blocking stream."""
    stream = c.c_void_p()
    call("cuStreamCreateWithPriority", c.byref(stream), _NON_BLOCKING, 0)
    return int(stream.value or 0)


def let_wait(stream: int, other: int) -> None:
    """Let what `stream` is given from now on wait for what `other` was given until now."""
    event = c.c_void_p()
    call("cuEventCreate", c.byref(event), 2)
    call("cuEventRecord", event, c.c_void_p(other))
    call("cuStreamWaitEvent", c.c_void_p(stream), event, 0)
    call("cuEventDestroy_v2", event)


def synchronize(stream: int) -> None:
    call("cuStreamSynchronize", c.c_void_p(stream))


class Block:
    """Memory of the device. When it is freed, the next block of its size and stream gets it at once."""

    _freed: ClassVar[dict[tuple[int, int], list[int]]] = {}

    def __init__(self, n_bytes: int, stream: int) -> None:
        self._key = (max(n_bytes, 1), stream)
        kept = self._freed.get(self._key)
        if kept:
            self.address = kept.pop()
            return
        address = c.c_uint64()
        call("cuMemAlloc_v2", c.byref(address), c.c_size_t(self._key[0]))
        self.address = address.value

    def __del__(self) -> None:
        if hasattr(self, "address"):
            self._freed.setdefault(self._key, []).append(self.address)


def fill(address: int, content: npt.NDArray[Any], stream: int) -> None:
    """Copy a contiguous array to the device, in the stream."""
    if content.nbytes:
        source = content.ctypes.data_as(c.c_void_p)
        call("cuMemcpyHtoDAsync_v2", c.c_uint64(address), source, c.c_size_t(content.nbytes), c.c_void_p(stream))
        synchronize(stream)


def fetch(address: int, n_bytes: int, stream: int) -> npt.NDArray[np.uint8]:
    """Return bytes of the device, as they are in the stream's order."""
    content = np.empty(n_bytes, np.uint8)
    if n_bytes:
        target = content.ctypes.data_as(c.c_void_p)
        call("cuMemcpyDtoHAsync_v2", target, c.c_uint64(address), c.c_size_t(n_bytes), c.c_void_p(stream))
        synchronize(stream)
    return content
