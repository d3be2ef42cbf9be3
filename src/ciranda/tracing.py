"""Calls and steps of this rank for tracers beyond the frameworks' profilers: NVTX ranges, and OpenTelemetry's spans.

    from ciranda import tracing

    tracing.to_nvtx()           # for Nsight Systems; needs the package nvtx
    tracing.to_opentelemetry()  # for Jaeger and the like; needs opentelemetry-api

Neither package is imported before. Spans show calls from Python, on the thread that makes them. Calls of compiled
programs are not among them: see `ciranda run --timeline`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ciranda import _basics
from ciranda._frameworks import require
from ciranda._spans import Always, Sink, no_longer_recorded_in, recorded_in
from ciranda.errors import InvalidArgumentError

__all__ = ["stop", "to_nvtx", "to_opentelemetry"]

_sinks: dict[str, Sink] = {}


def to_nvtx(domain: str = "ciranda") -> None:
    """Make each call and each step a range of NVTX, from now on; `pip install ciranda[nvtx]` brings what it needs.

    A call is a range of its thread. A step is a range of the process, from one call of `ciranda.step()` to the next.

    Args:
        domain: the NVTX domain of the ranges.

    Raises:
        ImportError: the package `nvtx` is not installed.
        InvalidArgumentError: calls are NVTX ranges already.
    """
    require("nvtx", "ciranda.tracing.to_nvtx()")
    import nvtx

    def make(name: str, _tensors: list[Any], attributes: Mapping[str, Any]) -> AbstractContextManager[Any]:
        called = f"{name} {attributes['Name']}".rstrip()
        range_of: AbstractContextManager[Any] = nvtx.annotate(called, domain=domain)
        return range_of

    @contextmanager
    def make_step(number: int) -> Iterator[None]:
        begun = nvtx.start_range(f"ciranda:step {number}", domain=domain)
        try:
            yield
        finally:
            nvtx.end_range(begun)

    _add("NVTX", Sink(Always, make, make_step))


def to_opentelemetry(tracer: Any = None, least_seconds: float = 0.01) -> None:
    """Make each step, and each long call, a span of OpenTelemetry, from now on.

    `pip install ciranda[opentelemetry]` brings what it needs, except the exporter that the program chooses. A step
    lasts from one call of `ciranda.step()` to the next, and begins a trace. The parent of a call's span is the span of
    its step, or the program's own span around the call.

    Args:
        tracer: OpenTelemetry's tracer; None for one of the global provider.
        least_seconds: shorter calls have no span; they only cost the reading of two clocks.

    Raises:
        ImportError: the package `opentelemetry` is not installed.
        InvalidArgumentError: calls are spans of OpenTelemetry already.
    """
    require("opentelemetry", "ciranda.tracing.to_opentelemetry()")
    from opentelemetry import trace

    made_by = tracer if tracer is not None else trace.get_tracer("ciranda")
    least_ns = round(least_seconds * 1e9)
    step_under_way: list[Any] = []

    @contextmanager
    def make(name: str, _tensors: list[Any], attributes: Mapping[str, Any]) -> Iterator[None]:
        # The span is made at the end, when its duration is known, which the monotonic clock measures: the other
        # clock may be set meanwhile.
        began_at, began = time.time_ns(), time.monotonic_ns()
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            lasted = time.monotonic_ns() - began
            if lasted >= least_ns:
                is_inside = trace.get_current_span().get_span_context().is_valid
                parent = None if is_inside or not step_under_way else trace.set_span_in_context(step_under_way[-1])
                span = made_by.start_span(name, parent, start_time=began_at, attributes=_named(attributes))
                if error is not None:
                    span.record_exception(error)
                    span.set_status(trace.StatusCode.ERROR, str(error))
                span.end(began_at + lasted)

    @contextmanager
    def make_step(number: int) -> Iterator[None]:
        of_step = {"ciranda.step": number, "ciranda.rank": _basics.rank()}
        span = made_by.start_span("ciranda:step", attributes=of_step)
        step_under_way.append(span)
        try:
            yield
        finally:
            step_under_way.remove(span)
            span.end()

    _add("OpenTelemetry", Sink(Always, make, make_step))


def stop() -> None:
    """Undo `to_nvtx()` and `to_opentelemetry()`. The span of the current step ends."""
    while _sinks:
        no_longer_recorded_in(_sinks.popitem()[1])


def _add(which: str, sink: Sink) -> None:
    if which in _sinks:
        raise InvalidArgumentError(f"calls are shown in {which} already; call ciranda.tracing.stop() first")
    _sinks[which] = sink
    recorded_in(sink)


def _named(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes under names in OpenTelemetry's style."""
    named = {f"ciranda.{key.lower().replace(' ', '_')}": value for key, value in attributes.items() if key != "Rank"}
    return {**named, "ciranda.rank": _basics.rank()}
