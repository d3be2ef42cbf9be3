"""What `torch.cuda` calls in torch's C++ part, and what it has no such calls for."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import torch

from . import streams

CUDA = 1  # c10::DeviceType


class _Calls:
    """Functions of `torch._C` by the names that `torch.cuda` calls them by, less the prefix `_cuda_`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def init(self) -> None:
        pass

    def getDeviceCount(self) -> int:
        return self._library.fake_torch_n_devices()

    def getDevice(self) -> int:
        return self._library.fake_torch_device()

    def setDevice(self, device: int) -> None:
        if not 0 <= device < self.getDeviceCount():
            raise torch.AcceleratorError("CUDA error: invalid device ordinal")
        self._library.fake_torch_set_device(device)

    def exchangeDevice(self, device: int) -> int:
        before = self.getDevice()
        if device >= 0:
            self.setDevice(device)
        return before

    def maybeExchangeDevice(self, device: int) -> int:
        return self.exchangeDevice(device)

    def getCurrentStream(self, device: int) -> tuple[int, int, int]:
        return self._library.fake_torch_stream(device), device, CUDA

    def getCurrentRawStream(self, device: int) -> int:
        return self._library.fake_torch_stream(device)

    def getDefaultStream(self, device: int) -> tuple[int, int, int]:
        return 0, device, CUDA

    def getStreamFromExternal(self, stream: int, device: int) -> tuple[int, int, int]:
        return stream, device, CUDA

    def setStream(self, stream_id: int, device_index: int, device_type: int) -> None:
        self._library.fake_torch_set_stream(device_index, stream_id)
        if device_index != self.getDevice():
            self.setDevice(device_index)

    def synchronize(self) -> None:
        self._library.fake_torch_synchronize(self.getDevice())

    def isCurrentStreamCapturing(self) -> bool:
        return False

    def canDeviceAccessPeer(self, device: int, peer: int) -> bool:
        return device != peer

    def emptyCache(self) -> None:
        self._library.fake_torch_empty_cache()

    def ipc_collect(self) -> None:
        pass


def _properties(device: Any = None) -> SimpleNamespace:
    index = torch.cuda._utils._get_device_index(device, optional=True)
    return SimpleNamespace(
        name=f"fake {index}", major=9, minor=0, multi_processor_count=132, total_memory=16 << 30, warp_size=32
    )


def _memory_stats(library: ctypes.CDLL, device: Any = None) -> dict[str, int]:
    index = torch.cuda._utils._get_device_index(device, optional=True)
    return {"allocated_bytes.all.current": library.fake_torch_n_allocated_bytes(index)}


def install(library: ctypes.CDLL) -> None:
    calls = _Calls(library)
    for name in dir(calls):
        if not name.startswith("_"):
            setattr(torch._C, f"_cuda_{name}", getattr(calls, name))
    cuda = torch.cuda
    torch._C._has_cuda = True
    torch.version.cuda = "13.0"
    cuda._cudart = SimpleNamespace()
    cuda._queued_calls.clear()  # checks of architectures
    for module in (cuda, cuda.streams):
        module.Stream, module.ExternalStream, module.Event = streams.Stream, streams.ExternalStream, streams.Event
    cuda._exchange_device, cuda._maybe_exchange_device = calls.exchangeDevice, calls.maybeExchangeDevice
    cuda.is_current_stream_capturing = calls.isCurrentStreamCapturing
    cuda.graphs.is_current_stream_capturing = calls.isCurrentStreamCapturing
    cuda._get_device_properties = cuda.get_device_properties = _properties
    cuda.default_generators = tuple(torch.Generator() for _ in range(calls.getDeviceCount()))
    for module in (cuda, cuda.memory):
        module.memory_stats = lambda device=None: _memory_stats(library, device)
