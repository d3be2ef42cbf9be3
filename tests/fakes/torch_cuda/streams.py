"""Streams and events, which are torch's for any device with the attributes that those of CUDA have."""

from __future__ import annotations

import ctypes
from typing import Any

import torch


class Stream(torch.Stream):
    """As torch.cuda.Stream."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Stream:
        if "stream_id" in kwargs:
            return super().__new__(cls, priority=priority, **kwargs)
        index = torch.cuda._utils._get_device_index(device, optional=True)
        return super().__new__(cls, torch.device("cuda", index), priority=priority)

    @property
    def cuda_stream(self) -> int:
        return int(self.native_handle or 0)

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.cuda_stream)

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.cuda_stream

    def wait_event(self, event: torch.Event) -> None:
        event.wait(self)

    def wait_stream(self, stream: torch.Stream) -> None:
        self.wait_event(stream.record_event())

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        if event is None:
            event = Event()
        event.record(self)
        return event

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and bool(super().__eq__(other))

    def __hash__(self) -> int:
        return hash((self.cuda_stream, self.device))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """As torch.cuda.ExternalStream."""

    def __new__(cls, stream_ptr: int, device: Any = None, **_: Any) -> ExternalStream:
        index = torch.cuda._utils._get_device_index(device, optional=True)
        return super().__new__(cls, stream_id=stream_ptr, device_index=index, device_type=1)


class Event(torch.Event):
    """As torch.cuda.Event."""

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: Any
    ) -> Event:
        return super().__new__(
            cls, torch.device("cuda"), enable_timing=enable_timing, blocking=blocking, interprocess=interprocess
        )

    @property
    def cuda_event(self) -> int:
        return int(self.event_id or 0)

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.cuda_event)

    def record(self, stream: torch.Stream | None = None) -> None:
        super().record(torch.cuda.current_stream() if stream is None else stream)

    def wait(self, stream: torch.Stream | None = None) -> None:
        super().wait(torch.cuda.current_stream() if stream is None else stream)

    def __repr__(self) -> str:
        return f"<torch.cuda.Event {self.cuda_event:#x}>" if self.cuda_event else "<torch.cuda.Event uninitialized>"
