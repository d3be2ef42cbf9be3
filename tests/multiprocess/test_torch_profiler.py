"""torch.profiler shows each call of ciranda.torch, and what an optimizer waits for."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch.profiler import ProfilerActivity, profile

import ciranda.torch as hvd

pytestmark = pytest.mark.multiprocess


def _rows_of(work: Callable[[], None]) -> list[dict[str, Any]]:
    """The spans of a profile of `work`, in order of their begin."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as taken:
        work()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        taken.export_chrome_trace(str(trace))
        whole = json.loads(trace.read_text())
    assert whole["distributedInfo"] == {"rank": hvd.rank(), "world_size": hvd.size()}, "of whom it is"
    rows = whole["traceEvents"]
    return sorted((row for row in rows if row["name"].startswith("ciranda:")), key=lambda row: row["ts"])


def _calls() -> None:
    hvd.allreduce(torch.ones(20, 3), name="sum", op=hvd.Sum)
    hvd.allreduce_(torch.ones(3, dtype=torch.float64), name="in place")
    hvd.synchronize(hvd.allgather_async(torch.ones(2), name="rows"))
    hvd.grouped_allreduce([torch.ones(2), torch.ones(3)], name="several")
    hvd.broadcast_(torch.ones(4), 0, name="from 0")
    hvd.reducescatter(torch.ones(4), name="parts")
    hvd.barrier()


def _show_calls() -> None:
    _calls()  # without a profile
    rows = _rows_of(_calls)
    assert [row["name"].removeprefix("ciranda:") for row in rows] == [
        "allreduce",
        "allreduce",
        "allgather submit",
        "wait",
        "allreduce submit",
        "wait",
        "broadcast",
        "reducescatter",
        "barrier",
    ]
    shown = ("Collective name", "Name", "dtype", "In msg nelems", "Msg bytes")
    assert [rows[0]["args"][key] for key in shown] == ["allreduce", "sum", "float32", 60, 240]
    assert [rows[1]["args"][key] for key in shown] == ["allreduce", "in place", "float64", 3, 24]
    assert [rows[4]["args"][key] for key in shown] == ["allreduce", "several", "float32", 5, 20]
    ranks = list(range(hvd.size()))
    group = ("Group size", "Process Group Name", "Process Group Description", "Process Group Ranks", "Rank")
    assert [rows[0]["args"][key] for key in group] == [len(ranks), "0", "all ranks", str(ranks), hvd.rank()]
    assert rows[0]["args"]["Out msg nelems"] == 60


def _show_steps() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())

    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()

    step()
    rows = _rows_of(step)
    by_name = {row["name"].removeprefix("ciranda:"): row for row in rows}
    outer, inner = by_name["DistributedOptimizer.step"], by_name["DistributedOptimizer.synchronize"]
    assert outer["ts"] <= inner["ts"]
    assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 1
    submitted = [row["args"] for row in rows if row["name"] == "ciranda:allreduce submit"]
    assert any("weight" in each["Name"] and each["dtype"] == "float32" for each in submitted)


@pytest.mark.parametrize("show", [_show_calls, _show_steps])
def test_profiles_show_what_is_called(worlds: Any, show: Callable[[], None]) -> None:
    worlds.of(2).run(show, timeout=120)
