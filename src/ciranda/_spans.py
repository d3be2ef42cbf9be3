"""Spans of calls, on the thread that makes them, and of steps: in a framework's profiler, and in `ciranda.tracing`.

    ciranda:allreduce           a blocking call
    ciranda:allreduce submit    the start of one that is waited for later
    ciranda:wait                the wait for it
    ciranda:step                from the end of a step to the end of the next

A `Sink` shows them. While none records, a call reads one more flag, and that is all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any, NamedTuple

from ciranda import _core

#: Makes a span of a name, with the tensors and attributes that are shown with it.
MakeSpan = Callable[[str, list[Any], Mapping[str, Any]], AbstractContextManager[Any]]
#: Makes the span of the step of this number.
MakeStep = Callable[[int], AbstractContextManager[Any]]

_NAME_OF = {number: name for name, number in _core.COLLECTIVES.items()}
_LOW_WORD = 0xFFFFFFFF  # of `id_of()`: the process set's id; its lane is above
_STEPS_AT = 8 * _core.PAGE_LAYOUT["fields"]["steps"][0]


class Sink(NamedTuple):
    """Where spans are shown.

    Attributes:
        switch: its `_is_profiler_enabled` tells whether the sink records now.
        make: makes the span of a call.
        make_step: makes the span of a step; None for a profiler that has steps of its own.
    """

    switch: Any
    make: MakeSpan
    make_step: MakeStep | None = None


class _Off:
    _is_profiler_enabled = False


class Always:
    """The switch of a sink that records until it is removed."""

    _is_profiler_enabled = True


class _AnyOf:
    def __init__(self, switches: list[Any]) -> None:
        self._switches = switches

    @property
    def _is_profiler_enabled(self) -> bool:
        return any(switch._is_profiler_enabled for switch in self._switches)


class _Profiler:
    """All sinks.

    Attributes:
        switch: its `_is_profiler_enabled` tells whether any sink records.
        marks_steps: whether the end of a step must be reported.
    """

    def __init__(self) -> None:
        self.switch: Any = _Off
        self.marks_steps = False
        self.sinks: list[Sink] = []
        self.step = ExitStack()  # the spans of the step that is under way

    def __reduce__(self) -> str:
        """A function that travels to another process by value, with what it refers to, finds the profiler there."""
        return "profiler"

    def set(self, sinks: list[Sink]) -> None:
        """Replace all sinks."""
        switches = [sink.switch for sink in sinks]
        self.sinks = sinks
        # One switch is read directly: a property costs ten times as much.
        self.switch = _Off if not switches else switches[0] if len(switches) == 1 else _AnyOf(switches)
        self.marks_steps = any(sink.make_step is not None for sink in sinks)


profiler = _Profiler()


def recorded_in(sink: Sink) -> None:
    """Add a sink."""
    profiler.set([*profiler.sinks, sink])


def no_longer_recorded_in(sink: Sink) -> None:
    """Remove the sink. The spans of the current step end first."""
    profiler.step.close()
    profiler.set([each for each in profiler.sinks if each is not sink])


def step_ended(engine: _core.Engine) -> None:
    """End the spans of a step, and begin those of the next. REQUIRES: the engine has counted it."""
    profiler.step.close()
    number = int.from_bytes(engine.counter_page()[_STEPS_AT : _STEPS_AT + 8], "little")
    for sink in profiler.sinks:
        if sink.make_step is not None and sink.switch._is_profiler_enabled:
            profiler.step.enter_context(sink.make_step(number + 1))


def span(name: str, tensors: object = None, attributes: Mapping[str, Any] | None = None) -> AbstractContextManager[Any]:
    """Return a span for a call of that name on these tensors, wherever one is recorded now."""
    shown = _arrays(tensors)
    given: dict[str, Any] = {"Collective name": name.partition(" ")[0], "Name": "", **_sizes(shown)}
    given.update(attributes or {})
    spans = [sink.make(f"ciranda:{name}", shown, given) for sink in profiler.sinks if sink.switch._is_profiler_enabled]
    if len(spans) == 1:
        return spans[0]
    return _Together(spans)


class _Together(ExitStack):
    """Several spans as one."""

    def __init__(self, spans: list[AbstractContextManager[Any]]) -> None:
        super().__init__()
        self._spans = spans

    def __enter__(self) -> _Together:
        for each in self._spans:
            self.enter_context(each)
        return self


class Described(_core.TensorDescription):
    """The description of a tensor that says what it is, for frameworks whose tensors the engine gets by address."""

    dtype: Any
    shape: Any


def _arrays(tensors: object) -> list[Any]:
    given = [] if tensors is None else list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
    return [each for each in given if hasattr(each, "dtype") and hasattr(each, "shape")]


def _n_elements(arrays: list[Any]) -> int:
    return sum(math.prod(each.shape) for each in arrays)


def _sizes(arrays: list[Any]) -> dict[str, Any]:
    if not arrays:
        return {"dtype": ""}
    dtype = arrays[0].dtype
    return {
        "dtype": getattr(dtype, "name", None) or str(dtype).removeprefix("torch."),
        "In msg nelems": _n_elements(arrays),
        "Msg bytes": sum(math.prod(each.shape) * _item_bytes(each.dtype) for each in arrays),
    }


def _item_bytes(dtype: Any) -> int:
    n_bytes: int = dtype.itemsize if hasattr(dtype, "itemsize") else dtype.size  # the latter is TensorFlow's
    return n_bytes


def call_attributes(engine: _core.Engine, name: str | None, process_set: int, outputs: object = None) -> dict[str, Any]:
    """What a span of a call says beside its tensors, under the names of torch's record_param_comms."""
    number = process_set & _LOW_WORD
    ranks = engine.ranks_of(number)
    attributes: dict[str, Any] = {
        "Name": name or "",
        "Group size": len(ranks),
        "Process Group Name": str(number),
        "Process Group Description": f"process set {number}" if number else "all ranks",
        "Process Group Ranks": str(ranks),
        "Rank": ranks.index(engine.rank) if engine.rank in ranks else -1,
    }
    if arrays := _arrays(outputs):  # the engine makes the others, as long as the ranks' rows need
        attributes["Out msg nelems"] = _n_elements(arrays)
    return attributes


class Recorded:
    """An engine whose next call is recorded."""

    __slots__ = ("_collective", "_engine", "_process_set")

    def __init__(self, engine: _core.Engine, collective: int, process_set: int = 0) -> None:
        """`process_set`: by `id_of()`, of a prepared call, which does not tell."""
        self._engine = engine
        self._collective = collective
        self._process_set = process_set

    def run(self, terms: _core.Terms, inputs: object, outputs: object, name: str | None, *more: Any) -> list[Any]:
        """As the engine's."""
        attributes = call_attributes(self._engine, name, more[0] if more else 0, outputs)
        with span(_NAME_OF[self._collective], inputs, attributes):
            return self._engine.run(terms, inputs, outputs, name, *more)

    def submit(
        self, terms: _core.Terms, inputs: object, outputs: object, name: str | None, *more: Any, **how: Any
    ) -> _core.Operation:
        """As the engine's."""
        attributes = call_attributes(self._engine, name, more[0] if more else 0, outputs)
        with span(f"{_NAME_OF[self._collective]} submit", inputs, attributes):
            return self._engine.submit(terms, inputs, outputs, name, *more, **how)

    def submit_prepared(self, prepared: _core.PreparedCall, tensors: object, *more: Any) -> _core.Operation:
        """As the engine's."""
        attributes = call_attributes(self._engine, prepared.name, self._process_set, tensors)
        with span(f"{_NAME_OF[self._collective]} submit", tensors, attributes):
            return self._engine.submit_prepared(prepared, tensors, *more)
