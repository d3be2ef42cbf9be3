"""What `torch.cuda` calls in torch's C++ part, and what it has no such calls for."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from . import graphs, streams

CUDA = 1  # c10::DeviceType


class _Calls:
    """What `torch.cuda` calls."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def by_name(self) -> dict[str, Callable[..., Any]]:
        """By the names in `torch._C`, less the prefix `_cuda_`."""
        return {
            "init": lambda: None,
            "getDeviceCount": self.device_count,
            "getDevice": self.device,
            "setDevice": self.set_device,
            "exchangeDevice": self.exchange_device,
            "maybeExchangeDevice": self.exchange_device,
            "getCurrentStream": self.current_stream,
            "getCurrentRawStream": self.raw_stream,
            "getDefaultStream": self.default_stream,
            "getStreamFromExternal": self.external_stream,
            "setStream": self.set_stream,
            "synchronize": self.synchronize,
            "isCurrentStreamCapturing": self.is_capturing,
            "canDeviceAccessPeer": self.can_access_peer,
            "emptyCache": self.empty_cache,
            "ipc_collect": lambda: None,
        }

    def device_count(self) -> int:
        return self._library.fake_torch_n_devices()

    def device(self) -> int:
        return self._library.fake_torch_device()

    def set_device(self, device: int) -> None:
        if not 0 <= device < self.device_count():
            raise torch.AcceleratorError("CUDA error: invalid device ordinal")
        self._library.fake_torch_set_device(device)

    def exchange_device(self, device: int) -> int:
        before = self.device()
        if device >= 0:
            self.set_device(device)
        return before

    def current_stream(self, device: int) -> tuple[int, int, int]:
        return self._library.fake_torch_stream(device), device, CUDA

    def raw_stream(self, device: int) -> int:
        return self._library.fake_torch_stream(device)

    def default_stream(self, device: int) -> tuple[int, int, int]:
        return 0, device, CUDA

    def external_stream(self, stream: int, device: int) -> tuple[int, int, int]:
        return stream, device, CUDA

    def set_stream(self, stream_id: int, device_index: int, device_type: int) -> None:
        self._library.fake_torch_set_stream(device_index, stream_id)
        if device_index != self.device():
            self.set_device(device_index)

    def synchronize(self) -> None:
        self._library.fake_torch_synchronize(self.device())

    def is_capturing(self) -> bool:
        return graphs.is_captured(self.raw_stream(self.device()))

    def can_access_peer(self, device: int, peer: int) -> bool:
        return device != peer

    def empty_cache(self) -> None:
        self._library.fake_torch_empty_cache()


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
    for name, function in calls.by_name().items():
        setattr(torch._C, f"_cuda_{name}", function)
    cuda = torch.cuda
    torch._C._has_cuda = True
    torch.version.cuda = "13.0"
    cuda._cudart = SimpleNamespace()
    cuda._queued_calls.clear()  # checks of architectures
    for module in (cuda, cuda.streams):
        module.Stream, module.ExternalStream, module.Event = streams.Stream, streams.ExternalStream, streams.Event
    for module in (cuda, cuda.graphs):
        module.CUDAGraph = graphs.CUDAGraph
    torch._C._host_emptyCache = lambda: None
    cuda._exchange_device, cuda._maybe_exchange_device = calls.exchange_device, calls.exchange_device
    cuda.is_current_stream_capturing = calls.is_capturing
    cuda.graphs.is_current_stream_capturing = calls.is_capturing
    cuda._get_device_properties = cuda.get_device_properties = _properties
    cuda.default_generators = tuple(torch.Generator() for _ in range(calls.device_count()))
    for module in (cuda, cuda.memory):
        module.memory_stats = lambda device=None: _memory_stats(library, device)
