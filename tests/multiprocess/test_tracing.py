"""Calls and steps as ranges of NVTX, and as spans of OpenTelemetry; neither is imported unless asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ciranda as hvd
from ciranda import tracing
from ciranda.errors import InvalidArgumentError, MismatchError

pytestmark = pytest.mark.multiprocess

_RANGES = """
import sys
import numpy as np
import ciranda as hvd
from ciranda import tracing

hvd.init()
hvd.allreduce(np.ones(3), name="before")
assert "nvtx" not in sys.modules
tracing.to_nvtx()
hvd.step()
hvd.allreduce(np.ones(3), name="x")
hvd.synchronize(hvd.allgather_async(np.ones(3), name="rows"))
hvd.step()
tracing.stop()
hvd.allreduce(np.ones(3), name="after")
hvd.step()
assert "opentelemetry" not in sys.modules
"""

_WANTED = """\
start ciranda: ciranda:step 2
push ciranda: ciranda:allreduce x
pop ciranda:
push ciranda: ciranda:allgather submit rows
pop ciranda:
push ciranda: ciranda:wait
pop ciranda:
end ciranda:
start ciranda: ciranda:step 3
end ciranda:
"""


def test_a_tool_of_nvtx_gets_calls_and_steps(tmp_path: Path) -> None:
    tool, output = str(tmp_path / "tool.so"), tmp_path / "ranges"
    source = str(Path(__file__).with_name("nvtx_tool.c"))
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", source, "-o", tool], check=True)
    environment = {**os.environ, "NVTX_INJECTION64_PATH": tool, "NVTX_TOOL_OUTPUT": str(output)}
    subprocess.run([sys.executable, "-c", _RANGES], env=environment, check=True, timeout=60)
    assert [line.rstrip() for line in output.read_text().splitlines()] == _WANTED.splitlines()


def _spans(least_seconds: float) -> list[dict[str, Any]]:
    """What OpenTelemetry gets of two steps, with a call in each, of which the second fails."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer("test")
    hvd.barrier()
    tracing.to_opentelemetry(tracer, least_seconds)
    with pytest.raises(InvalidArgumentError, match="already"):
        tracing.to_opentelemetry(tracer)
    hvd.step()
    hvd.allreduce(np.ones(3), name="right")
    hvd.step()
    with tracer.start_as_current_span("mine"), pytest.raises(MismatchError):
        hvd.allreduce(np.ones(3 + hvd.rank()), name="wrong")
    tracing.stop()
    hvd.barrier()
    return [
        {
            "name": span.name,
            "id": span.context.span_id,
            "parent": span.parent and span.parent.span_id,
            "seconds": (span.end_time - span.start_time) / 1e9,
            "is_ok": span.status.is_ok,
            **span.attributes,
        }
        for span in kept.get_finished_spans()
    ]


def test_opentelemetry_gets_steps_and_calls(worlds: Any) -> None:
    for rank, found in enumerate(worlds.of(2).run(_spans, 0.0, timeout=60)):
        names = ["ciranda:allreduce", "ciranda:step", "ciranda:allreduce", "mine", "ciranda:step"]
        assert [each["name"] for each in found] == names
        right, step, wrong, mine, last_step = found
        assert (right["ciranda.name"], right["ciranda.group_size"], right["ciranda.rank"]) == ("right", 2, rank)
        assert (right["parent"], wrong["parent"]) == (step["id"], mine["id"])
        assert (right["is_ok"], wrong["is_ok"]) == (True, False)
        assert last_step["ciranda.step"] == step["ciranda.step"] + 1
        assert 0 < right["seconds"] <= step["seconds"]


def test_short_calls_are_no_spans(worlds: Any) -> None:
    for found in worlds.of(2).run(_spans, 3600.0, timeout=60):
        assert [each["name"] for each in found] == ["ciranda:step", "mine", "ciranda:step"]
