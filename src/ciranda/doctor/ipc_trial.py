"""Whether a process can read the memory that another has on a GPU, by CUDA IPC: without it no tensors go by peer.

`python -m ciranda.doctor.ipc_trial 8` makes memory on each of 8 GPUs and starts itself once more, to read that of each
GPU on the same one and on the next one. It prints what is wrong, or an empty line.
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


class _Gpu:
    """A GPU, for this thread; what fails ends the program, which then prints why."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._library = ctypes.CDLL("libcuda.so.1")
        device, self._context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), number)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)

    def enter(self) -> None:
        """Make it the one that calls are about."""
        self.call("cuCtxSetCurrent", self._context)

    def call(self, name: str, *arguments: Any) -> None:
        outcome = self._library[name](*arguments)
        if outcome == 0:
            return
        error = ctypes.c_char_p()
        self._library.cuGetErrorName(outcome, ctypes.byref(error))
        text = (error.value or b"unknown").decode()
        print(f"{name.removesuffix('_v2')} failed on GPU {self._number}: {text} ({outcome})")
        sys.exit()

    def export(self) -> bytes:
        """Return the handle of memory that is full of _VALUE."""
        address, handle = ctypes.c_uint64(), _Handle()
        self.enter()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(_N_BYTES))
        self.call("cuMemsetD8Async", address, ctypes.c_ubyte(_VALUE), ctypes.c_size_t(_N_BYTES), None)
        self.call("cuCtxSynchronize")
        self.call("cuIpcGetMemHandle", ctypes.byref(handle), address)
        return bytes(handle)

    def reads(self, handle: bytes) -> bool:
        """Whether another process's memory is full of _VALUE."""
        address, found = ctypes.c_uint64(), (ctypes.c_ubyte * _N_BYTES)()
        opened = _Handle.from_buffer_copy(handle)
        self.enter()
        self.call("cuIpcOpenMemHandle_v2", ctypes.byref(address), opened, ctypes.c_uint(_LAZY_PEER_ACCESS))
        self.call("cuMemcpyDtoHAsync_v2", found, address, ctypes.c_size_t(_N_BYTES), None)
        self.call("cuCtxSynchronize")
        self.call("cuIpcCloseMemHandle", address)
        return bytes(found) == bytes([_VALUE]) * _N_BYTES


def _export(n_gpus: int) -> str:
    """Return what the process said that has read the memory, or failed to."""
    handles = [_Gpu(number).export().hex() for number in range(n_gpus)]
    reader = [sys.executable, "-m", "ciranda.doctor.ipc_trial", str(n_gpus), *handles]
    done = subprocess.run(reader, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def _read(handles: list[bytes]) -> str:
    """Return what is wrong with another process's memory. `handles`: of that on each GPU."""
    gpus = [_Gpu(number) for number in range(len(handles))]
    for number, handle in enumerate(handles):
        for reader in sorted({number, (number + 1) % len(gpus)}):
            if not gpus[reader].reads(handle):
                return f"GPU {reader} reads other bytes than another process has on GPU {number}"
    return ""


if __name__ == "__main__":
    print(_read([bytes.fromhex(handle) for handle in sys.argv[2:]]) if sys.argv[2:] else _export(int(sys.argv[1])))
