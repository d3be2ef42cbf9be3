"""Looks: values inside a compiled program that Python sees in the program's first runs.

The other side is `cpp/bindings/native/ciranda/native/looks.hpp`: a step of the program, whose cost is that of a look-up
once Python has seen enough.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np

from ciranda import errors
from ciranda._basics import at_end
from ciranda._numbering import at_join

#: Called with the tensors' addresses, on a thread of the framework. Returns whether it has seen enough of this era.
See = Callable[[Sequence[int]], bool]

_LOOK = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_char_p,
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_char),
    ctypes.c_size_t,
)
#: ciranda_status.
_OK, _INTERNAL = 0, 6
_STATUS: dict[type[errors.CirandaError], int] = {
    errors.InvalidArgumentError: 1,
    errors.MismatchError: 2,
    errors.RanksLostError: 3,
    errors.TimeoutError: 4,
    errors.AbortedError: 5,
}


class Looks:
    """The looks of the programs of one framework.

    Args:
        library: the native part of the framework's binding.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._end = library.ciranda_plugin_end_look
        self._end.argtypes = [ctypes.c_char_p]
        self._sees: dict[bytes, See] = {}
        self._numbers = count()
        self._look = _LOOK(self._called)  # kept: the library has its address
        library.ciranda_plugin_look_by.argtypes = [_LOOK]
        library.ciranda_plugin_look_by(self._look)
        for begin in (at_end, at_join):  # what was seen enough of is seen again
            begin.append(library.ciranda_plugin_look_again)

    def add(self, name: str, see: See) -> str:
        """Return the name of a new look: `name` with a number, the same in each process that adds the same looks."""
        numbered = f"{name}#{next(self._numbers)}"
        self._sees[numbered.encode()] = see
        return numbered

    def _called(self, name: bytes, n_tensors: int, data: Any, message: Any, capacity: int) -> int:
        try:
            see = self._sees.get(name)  # None: of a program that another process has written
            if see is None or see([data[index] or 0 for index in range(n_tensors)]):
                self._end(name)
            return _OK
        except BaseException as error:  # which must not leave this function
            text = str(error).encode()[: capacity - 1] + b"\0"
            ctypes.memmove(message, text, len(text))
            return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), _INTERNAL)


def bytes_at(address: int, n_bytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the memory at an address, without a copy."""
    if n_bytes == 0:
        return np.empty(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * n_bytes).from_address(address))
