"""CUDA graphs, of what calls the driver itself: torch's operators run at once here, and cannot be part of one."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch

_MODES = {"global": 0, "thread_local": 1, "relaxed": 2}


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _call(function: str, *arguments: Any) -> None:
    error = getattr(_driver(), function)(*arguments)
    if error:
        raise torch.AcceleratorError(f"CUDA error: {function} gave {error}")


def _stream() -> ctypes.c_void_p:
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def is_captured(stream: int) -> bool:
    status, capture = ctypes.c_int(), ctypes.c_uint64()
    _call(
        "cuStreamGetCaptureInfo_v2", ctypes.c_void_p(stream), ctypes.byref(status), ctypes.byref(capture), *[None] * 3
    )
    return status.value == 1


class CUDAGraph:
    """As torch.cuda.CUDAGraph."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._graph, self._exec = ctypes.c_void_p(), ctypes.c_void_p()

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **_: Any) -> None:
        _call("cuStreamBeginCapture_v2", _stream(), _MODES[capture_error_mode])

    def capture_end(self) -> None:
        _call("cuStreamEndCapture", _stream(), ctypes.byref(self._graph))
        _call("cuGraphInstantiateWithFlags", ctypes.byref(self._exec), self._graph, ctypes.c_uint64())

    def replay(self) -> None:
        _call("cuGraphLaunch", self._exec, _stream())
