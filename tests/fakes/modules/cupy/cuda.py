"""The streams of the stand-in for CuPy. Each thread works in one, at first in the default stream."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import driver

_thread = threading.local()


def current() -> int:
    return getattr(_thread, "stream", 0)


def get_current_stream(device_id: int | None = None) -> Any:
    return SimpleNamespace(ptr=current())


class Stream:
    """A non-blocking stream: this thread's within `with`, or from `use()` on."""

    def __init__(self) -> None:
        self.ptr = driver.new_stream()
        self._before: list[int] = []

    def use(self) -> None:
        _thread.stream = self.ptr

    def synchronize(self) -> None:
        driver.synchronize(self.ptr)

    def __enter__(self) -> Stream:
        self._before.append(current())
        self.use()
        return self

    def __exit__(self, *_: object) -> None:
        _thread.stream = self._before.pop()


class ExternalStream(Stream):
    """One that there is already: 1 is the legacy default stream, 2 that of the calling thread."""

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr
        self._before: list[int] = []
