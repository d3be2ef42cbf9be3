"""Whether a process can read the memory that another has on a GPU, by CUDA IPC: without it no tensors go by peer.

`python -m ciranda.doctor.ipc_trial` makes memory on GPU 0 and starts itself once more to read it. It prints what is
wrong, or an empty line.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Any

_N_BYTES = 1 << 20
_VALUE = 0x5F
_LAZY_PEER_ACCESS = 1


class _Handle(ctypes.Structure):
    """CUipcMemHandle."""

    _fields_ = [("reserved", ctypes.c_char * 64)]


class _Driver:
    """The driver, with GPU 0 for this thread; what fails ends the program, which then prints why."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: Any) -> None:
        outcome = self._library[name](*arguments)
        if outcome == 0:
            return
        error = ctypes.c_char_p()
        self._library.cuGetErrorName(outcome, ctypes.byref(error))
        print(f"{name.removesuffix('_v2')} failed: {(error.value or b'unknown').decode()} ({outcome})")
        sys.exit()


def _export() -> str:
    """Return what the process said that has read the memory, or failed to."""
    driver, address, handle = _Driver(), ctypes.c_uint64(), _Handle()
    driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(_N_BYTES))
    driver.call("cuMemsetD8Async", address, ctypes.c_ubyte(_VALUE), ctypes.c_size_t(_N_BYTES), None)
    driver.call("cuCtxSynchronize")
    driver.call("cuIpcGetMemHandle", ctypes.byref(handle), address)
    reader = [sys.executable, "-m", "ciranda.doctor.ipc_trial", bytes(handle).hex()]
    done = subprocess.run(reader, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def _read(handle: bytes) -> str:
    """Return what is wrong with another process's memory."""
    driver, address, found = _Driver(), ctypes.c_uint64(), (ctypes.c_ubyte * _N_BYTES)()
    opened = _Handle.from_buffer_copy(handle)
    driver.call("cuIpcOpenMemHandle_v2", ctypes.byref(address), opened, ctypes.c_uint(_LAZY_PEER_ACCESS))
    driver.call("cuMemcpyDtoHAsync_v2", found, address, ctypes.c_size_t(_N_BYTES), None)
    driver.call("cuCtxSynchronize")
    driver.call("cuIpcCloseMemHandle", address)
    return "" if bytes(found) == bytes([_VALUE]) * _N_BYTES else "another process reads other bytes there"


if __name__ == "__main__":
    print(_read(bytes.fromhex(sys.argv[1])) if sys.argv[1:] else _export())
