"""JAX's profiler shows the calls that Python makes, with their attributes, and steps."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Any

import pytest
from ranks import Ranks

from ciranda.launch import jax_profile

pytestmark = pytest.mark.multiprocess


def _begin_in_merged_traces(folder: Path) -> float:
    """The time of day of the first call, as `ciranda merge` finds it."""
    trace = jax_profile.trace_in(folder)
    assert trace is not None
    began = jax_profile.began_ns(trace)
    assert began is not None
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    times = [event["ts"] for event in events if event.get("args", {}).get("long_name") == "ciranda:allreduce"]
    return float(began + 1000 * min(times))


def _events(folder: str) -> list[dict[str, Any]]:
    """What one rank's profile has of its calls and steps, in their order."""
    import jax
    import jax.numpy as jnp

    import ciranda
    import ciranda.jax as hvd

    own = Path(folder) / str(hvd.rank())
    hvd.allreduce(jnp.ones(3), name="without a profile")
    before = time.time_ns()
    with jax.profiler.trace(str(own)):
        for _ in range(2):
            hvd.allreduce(jnp.ones((5, 2)), name="x#1,y=2")
            hvd.synchronize(hvd.allgather_async(jnp.ones(4), name="rows"))
            jax.grad(lambda x: hvd.allreduce(x, name="traced").sum())(jnp.ones(7))
            hvd.barrier()
            ciranda.step()
    assert before <= _begin_in_merged_traces(own) <= time.time_ns()
    (file,) = own.rglob("*.xplane.pb")
    found = [
        {"name": event.name.removeprefix("ciranda:"), "begin": event.start_ns, "end": event.end_ns, **dict(event.stats)}
        for plane in jax.profiler.ProfileData.from_file(str(file)).planes
        for line in plane.lines
        for event in line.events
        if event.name.startswith("ciranda:")
    ]
    return sorted(found, key=lambda event: float(event["begin"]))


def test_profiles_show_calls_and_steps(three: Ranks, tmp_path: Path) -> None:
    for events in three.run(_events, str(tmp_path)):
        (step,) = (event for event in events if event["name"] == "step")
        calls = [event for event in events if event is not step]
        names = ["allreduce", "allgather submit", "wait", "allreduce", "allreduce", "barrier"]
        assert [call["name"] for call in calls] == names * 2
        first, _, _, traced, gradient, *_ = calls
        shown = ("Name", "dtype", "In msg nelems", "Msg bytes", "Group size", "Out msg nelems")
        assert [str(first[key]) for key in shown] == ["x_1;y:2", "float32", "10", "40", "3", "10"]
        assert (traced["Name"], gradient["Name"], str(traced["In msg nelems"])) == ("traced", "traced.gradient", "7")
        inside = [call for call in calls if call["begin"] >= step["begin"]]
        assert len(inside) == len(names)
        assert all(call["end"] <= step["end"] for call in inside)
