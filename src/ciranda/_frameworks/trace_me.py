"""Spans in XLA's profiler, which JAX and TensorFlow share: by TraceMe, as each of them has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from ciranda._spans import Sink

#: Makes a TraceMe of a name, with metadata.
TraceMe = Callable[..., AbstractContextManager[Any]]

_SEPARATORS = str.maketrans({"#": "_", ",": ";", "=": ":"})  # within the text that TraceMe makes of its metadata


class _Switch:
    def __init__(self, is_enabled: Callable[[], bool]) -> None:
        self._is_enabled = is_enabled

    @property
    def _is_profiler_enabled(self) -> bool:
        return self._is_enabled()


def sink(trace_me: TraceMe, is_enabled: Callable[[], bool]) -> Sink:
    """Return where spans are shown while a profile is under way, as `is_enabled` says."""

    def make(name: str, _tensors: list[Any], attributes: Mapping[str, Any]) -> AbstractContextManager[Any]:
        return trace_me(name, **{key: str(value).translate(_SEPARATORS) for key, value in attributes.items()})

    def make_step(number: int) -> AbstractContextManager[Any]:
        return trace_me("ciranda:step", step_num=number, _r=1)  # _r: by which TensorBoard knows a step

    return Sink(_Switch(is_enabled), make, make_step)
