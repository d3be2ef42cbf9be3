"""Spans of calls in a framework's profiler, on the thread that makes them.

    ciranda:allreduce           a blocking call
    ciranda:allreduce submit    the start of one that is waited for later
    ciranda:wait                the wait for it

A framework with a profiler says which, by `recorded_in()`. Without a profile under way a call costs the reading of a
flag more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from ciranda import _core

#: Makes a span of a name, with the tensors and attributes that are shown with it.
MakeSpan = Callable[[str, list[Any], Mapping[str, Any]], AbstractContextManager[Any]]

_NAME_OF = {number: name for name, number in _core.COLLECTIVES.items()}


class _NoProfiler:
    _is_profiler_enabled = False


class _Profiler:
    """The module whose `_is_profiler_enabled` says whether a profile is under way; what makes spans."""

    def __init__(self) -> None:
        self.switch: Any = _NoProfiler
        self.make: MakeSpan | None = None


profiler = _Profiler()


def recorded_in(switch: Any, make: MakeSpan) -> None:
    """Have calls recorded by `make` while `switch._is_profiler_enabled`."""
    profiler.switch, profiler.make = switch, make


def span(name: str, tensors: object = None, call: str | None = None) -> AbstractContextManager[Any]:
    """Return a span for a call of that name on these tensors. REQUIRES: a profile is under way."""
    assert profiler.make is not None
    given = [] if tensors is None else list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
    shown = [each for each in given if hasattr(each, "dtype") and hasattr(each, "shape")]
    n_elements = [math.prod(each.shape) for each in shown]
    sizes = [n * each.dtype.itemsize for n, each in zip(n_elements, shown, strict=True)]
    attributes = {
        "Collective name": name.partition(" ")[0],
        "Name": call or "",
        "dtype": str(shown[0].dtype).removeprefix("torch.") if shown else "",
        "Msg nelems": sum(n_elements),
        "Msg bytes": sum(sizes),
    }
    return profiler.make(f"ciranda:{name}", shown, attributes)


class Recorded:
    """An engine whose next call is recorded."""

    __slots__ = ("_engine", "_name")

    def __init__(self, engine: _core.Engine, collective: int) -> None:
        self._engine = engine
        self._name = _NAME_OF[collective]

    def run(self, terms: _core.Terms, inputs: object, outputs: object, name: str | None, *more: Any) -> list[Any]:
        """As the engine's."""
        with span(self._name, inputs, name):
            return self._engine.run(terms, inputs, outputs, name, *more)

    def submit(
        self, terms: _core.Terms, inputs: object, outputs: object, name: str | None, *more: Any, **how: Any
    ) -> _core.Operation:
        """As the engine's."""
        with span(f"{self._name} submit", inputs, name):
            return self._engine.submit(terms, inputs, outputs, name, *more, **how)

    def submit_prepared(self, prepared: _core.PreparedCall, tensors: object, *more: Any) -> _core.Operation:
        """As the engine's."""
        with span(f"{self._name} submit", tensors, prepared.name):
            return self._engine.submit_prepared(prepared, tensors, *more)
