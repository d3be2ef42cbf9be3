"""A timeline has every collective, with its name, begin and end, and comes to a proper end."""

from __future__ import annotations

import json
import os
import re
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import ciranda
import ciranda.torch as hvd

pytestmark = pytest.mark.multiprocess


def _record(path: str, by: str) -> None:
    hvd.allreduce(torch.ones(2), name="before")
    hvd.start_timeline(path + "" if hvd.rank() == 0 else path + ".other", mark_cycles=True)
    hvd.start_timeline(os.path.relpath(path) + ("" if hvd.rank() == 0 else ".other"))  # the same: goes on
    with pytest.raises(ValueError, match=r"already, in '.*timeline.json.*'.*in '/another'"):
        hvd.start_timeline("/another")
    hvd.barrier()  # whoever is ready before rank 0 records leaves no tick
    handles = [hvd.allreduce_async(torch.ones(50_000), name=f"async {i}") for i in range(3)]
    hvd.allreduce(torch.ones(2), name="blocking")
    hvd.allreduce_(torch.ones(2), name="in place")
    ciranda.allreduce([1.0], name="of numpy")
    for handle in handles:
        hvd.synchronize(handle)
    hvd.broadcast(torch.ones(2), 0)
    ciranda.allgather([1.0], name="of numpy")
    hvd.barrier()
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert hvd.size() == 2
    if by == "stop":
        hvd.stop_timeline()
        hvd.stop_timeline()
        hvd.allreduce(torch.ones(2), name="after")
    else:
        hvd.shutdown()
        hvd.init()
        hvd.allreduce(torch.ones(2), name="after")


@pytest.mark.parametrize("by", ["stop", "shutdown"])
def test_timeline(worlds: Any, tmp_path: Path, by: str) -> None:
    path = tmp_path / "timeline.json"
    worlds.of(2).run(_record, str(path), by)
    assert [file.name for file in tmp_path.iterdir()] == ["timeline.json"], "rank 0 records"
    events = json.loads(path.read_text())
    rows = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    spans: dict[str, list[tuple[str, float, float]]] = {}
    ticks: dict[str, list[int]] = {}
    for event in events:
        if event["ph"] == "X" and event["name"].isdigit():
            ticks.setdefault(rows[event["tid"]], []).append(event["args"]["rank"])
        elif event["ph"] == "X":
            assert rows[event["tid"]] == event["args"]["tensor"]
            assert event["dur"] >= 0
            row = re.sub(r"noname\.\d+", "noname", rows[event["tid"]])  # the engine's numbers
            spans.setdefault(row, []).append((event["name"], event["ts"], event["ts"] + event["dur"]))
    assert {name: [kind for kind, _, _ in found] for name, found in spans.items()} == {
        "allreduce.async 0": ["NEGOTIATE_ALLREDUCE", "ALLREDUCE"],
        "allreduce.async 1": ["NEGOTIATE_ALLREDUCE", "ALLREDUCE"],
        "allreduce.async 2": ["NEGOTIATE_ALLREDUCE", "ALLREDUCE"],
        "allreduce.blocking": ["NEGOTIATE_ALLREDUCE", "ALLREDUCE"],
        "allreduce.in place": ["NEGOTIATE_ALLREDUCE", "ALLREDUCE"],
        "allreduce.of numpy": ["NEGOTIATE_ALLREDUCE", "ALLREDUCE"],
        "broadcast.noname": ["NEGOTIATE_BROADCAST", "BROADCAST"],
        "allgather.of numpy": ["NEGOTIATE_ALLGATHER", "ALLGATHER"],
        "barrier.noname": ["NEGOTIATE_BARRIER", "BARRIER"] * 2,
        "allreduce.DistributedOptimizer.bias+weight": ["NEGOTIATE_ALLREDUCE", "ALLREDUCE"] * 2,
        "allreduce.DistributedOptimizer.weight.parameters": ["NEGOTIATE_ALLREDUCE", "ALLREDUCE"],
        # The second step's gradients take along what the ranks ask each other in the first.
        "allreduce.DistributedOptimizer.weight+bias.presence": ["NEGOTIATE_ALLREDUCE", "ALLREDUCE"],
    }
    assert ticks.keys() >= {row for row in rows.values() if "noname" not in row}, "where a rank was ready"
    assert all(sorted(ticks[f"allreduce.async {i}"]) == [0, 1] for i in range(3))
    # They begin in the order of the calls, and the broadcast after the asynchronous ones are done.
    in_order = [*(f"allreduce.{name}" for name in ("async 0", "async 1", "async 2", "blocking")), "broadcast.noname"]
    begins = [spans[name][0][1] for name in in_order]
    assert begins == sorted(begins)
    for found in spans.values():
        assert all(earlier[2] <= later[1] + 1e-3 for earlier, later in pairwise(found)), "one after the other"
    marks = [event["ts"] for event in events if event["name"] == "CYCLE_START"]
    assert marks
    assert set(marks) <= {begin for found in spans.values() for kind, begin, _ in found if kind.isalpha()}
    (start,) = (event["args"] for event in events if event["name"] == "start_time_since_epoch_in_micros")
    now = start["start_time_since_epoch_in_micros"] + max(marks)
    assert abs(now / 1e6 - time.time()) < 600, "by which times of day can be told"
