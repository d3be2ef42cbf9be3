"""The native plugin, which makes collectives operations of MXNet's engine (`_pushing`)."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ciranda._frameworks import plugin
from ciranda.errors import AbortedError, InternalError, InvalidArgumentError
from ciranda.mxnet import _versions

_VERSION = _versions.check()

import numpy as np  # noqa: E402 (once it is known that MXNet can be imported)
from mxnet.base import _LIB, NDArrayHandle  # noqa: E402

MESSAGE_BYTES = 4096


class _Buffer(threading.local):
    """A thread's buffers for the plugin's messages and for memory that MXNet has released.

    Allocating them for each call would take a tenth of its time.
    """

    def __init__(self) -> None:
        self.message = ctypes.create_string_buffer(MESSAGE_BYTES)
        self.given_back = (ctypes.c_void_p * 64)()


buffer = _Buffer()


library = plugin.opened("mxnet", _VERSION)

if os.environ.get("MXNET_ENGINE_TYPE") == "NaiveEngine":
    # Each call blocks until it is done: ranks with different orders of calls would deadlock.
    os.environ.setdefault("CIRANDA_FAIL_OTHER_ORDERS", "1")

library.ciranda_mxnet_push.argtypes = [
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.c_char_p,
    ctypes.c_int32,
    ctypes.c_int32,
    ctypes.c_double,
    ctypes.c_double,
    ctypes.c_uint64,
    ctypes.c_int32,
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_size_t,
]
library.ciranda_mxnet_push.restype = ctypes.c_int32
library.ciranda_mxnet_hold.argtypes = [
    *(ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
]
library.ciranda_mxnet_hold.restype = ctypes.c_int32
library.ciranda_mxnet_let_go.argtypes = [ctypes.c_void_p]
library.ciranda_mxnet_let_go.restype = None
library.ciranda_mxnet_pushed_names.restype = ctypes.c_size_t
library.ciranda_mxnet_failure_of.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
library.ciranda_mxnet_failure_of.restype = ctypes.c_int32
library.ciranda_mxnet_raised.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
library.ciranda_mxnet_raised.restype = None
library.ciranda_mxnet_note_error.argtypes = [ctypes.c_int32, ctypes.c_char_p]
library.ciranda_mxnet_note_error.restype = None
library.ciranda_mxnet_last_error.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
library.ciranda_mxnet_last_error.restype = ctypes.c_int32
library.ciranda_mxnet_lend.argtypes = [
    *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
]
library.ciranda_mxnet_lend.restype = ctypes.c_int32
library.ciranda_mxnet_fetch_given_back.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
library.ciranda_mxnet_fetch_given_back.restype = ctypes.c_size_t


@contextmanager
def held(arrays: Sequence[Any]) -> Iterator[list[int]]:
    """Wait for arrays, and protect them from writes while their memory is read. Yields their addresses.

    Raises:
        MXNetError: an array has failed.
    """
    count = len(arrays)
    addresses, holder = (ctypes.c_void_p * count)(), ctypes.c_void_p()
    handles = (ctypes.c_void_p * count)(*[array.handle.value for array in arrays])
    message = buffer.message
    ended = library.ciranda_mxnet_hold(handles, count, addresses, ctypes.byref(holder), message, MESSAGE_BYTES)
    if ended == 1:
        raise InternalError(f"ciranda.mxnet: {message.value.decode(errors='replace')}")
    if ended:
        for array in arrays:
            array.wait_to_read()
        raise AbortedError("ciranda.mxnet: an array that was to be read has failed")
    try:
        yield [address or 0 for address in addresses]
    finally:
        library.ciranda_mxnet_let_go(holder)


def note_failure(status: int, message: str) -> None:
    """Record the error of a call that is not an operation of MXNet's engine."""
    library.ciranda_mxnet_note_error(status, message.encode())


def last_failure() -> tuple[int, str]:
    """Return the status and the message of the call that failed last; status 0 if none has."""
    message = ctypes.create_string_buffer(MESSAGE_BYTES)
    status = int(library.ciranda_mxnet_last_error(message, MESSAGE_BYTES))
    return status, message.value.decode(errors="replace")


def address_of(array: Any) -> int:
    """Return the address of an array that nothing writes any more."""
    data = ctypes.c_void_p()
    if _LIB.MXNDArrayGetData(array.handle, ctypes.byref(data)):
        raise InvalidArgumentError(f"ciranda.mxnet: {_LIB.MXGetLastError()!r}")
    return data.value or 0


def lend(array: np.ndarray[Any, Any], dtype: int) -> ctypes.c_void_p | None:
    """Return the handle of a new MXNet array in the memory of `array`; None if MXNet cannot have one there.

    `dtype` is the engine's number. Memory that MXNet has released since the last call is freed here, under the GIL:
    MXNet releases it on its own threads, and perhaps when the process exits.
    """
    owner = ctypes.py_object(array)
    given_back = buffer.given_back
    while n := library.ciranda_mxnet_fetch_given_back(given_back, len(given_back)):
        for address in filter(None, given_back[:n]):
            ctypes.pythonapi.Py_DecRef(ctypes.cast(address, ctypes.py_object))
    handle: ctypes.c_void_p = NDArrayHandle()
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    ctypes.pythonapi.Py_IncRef(owner)
    if library.ciranda_mxnet_lend(array.ctypes.data, shape, array.ndim, dtype, id(array), ctypes.byref(handle)):
        ctypes.pythonapi.Py_DecRef(owner)
        return None
    return handle


def note_raised(array: Any = None, text: str = "") -> None:
    """Record that MXNet has raised an error, for this array; without arguments, that it has raised all errors."""
    library.ciranda_mxnet_raised(None if array is None else array.handle, text.encode())


def failure_of(array: Any) -> str:
    """Return the error of an array that nothing writes; "" if it has not failed."""
    message = buffer.message
    has_failed = library.ciranda_mxnet_failure_of(array.handle, message, MESSAGE_BYTES)
    return message.value.decode(errors="replace") if has_failed else ""


def pushed_names() -> int:
    """Return the number of names of calls that are in MXNet's queues or pending."""
    return int(library.ciranda_mxnet_pushed_names())


def live_calls() -> int:
    """Return the number of pending calls."""
    return int(library.ciranda_plugin_live_calls())


def describe() -> str:
    """Return the findings for `ciranda doctor`."""
    return f"MXNet {_VERSION}: all symbols found; collectives are operations of its engine"
