"""Profiles beside a timeline: on its axis, as processes of their own."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from ciranda.launch import record_file
from ciranda.launch.clocks import HostClock
from ciranda.launch.errors import LaunchError
from ciranda.launch.merging import merge
from ciranda.launch.record_file import RecordFile
from ciranda.launch.timeline import RankRecords, about, write_timeline
from ciranda.launch.trace_writer import TraceFile

ENTRY = struct.Struct("=10Q")
DAY_US = 86_400_000_000
BEGAN_NS = 5_000_000_000  # of the launcher's clock: where the axis begins
EPOCH_US = 1_800_000_000_000_000  # the time of day at which the clock of rank 0's host was 0


class OtherHost(HostClock):
    """A clock that is a day ahead."""

    def launchers(self, at: int) -> int:
        return at - DAY_US * 1000


def records(rank: int, clock: HostClock, epoch_us: int) -> RankRecords:
    file = RecordFile()
    file.append(ENTRY.pack(record_file.MAGIC, record_file.VERSION, rank, 2, 1, epoch_us, 0, 0, 0, 0))
    return RankRecords(rank, f"host{rank}", clock, file)


@pytest.fixture
def timeline(tmp_path: Path) -> Path:
    """Of two ranks, on hosts whose clocks and times of day differ."""
    ranks = [records(0, HostClock(), EPOCH_US), records(1, OtherHost(), EPOCH_US + 7_000_000)]
    to = TraceFile(tmp_path / "all.json.gz")
    to.complete(about(write_timeline(ranks, to, BEGAN_NS), ranks, 0.0, "job", ["python"]))
    return tmp_path / "all.json.gz"


def profile(path: Path, at_us: int, **fields: Any) -> Path:
    """What torch.profiler exports, of one span of a tensor's, at a time of day."""
    base_us = at_us - 1000
    event = {"ph": "X", "name": "aten::add", "pid": 4711, "tid": 4712, "ts": 1000.0, "dur": 5.0, **fields}
    named = {"ph": "M", "name": "process_name", "pid": 4711, "tid": 0, "ts": 0.0, "args": {"name": "python"}}
    order = {"ph": "M", "name": "process_sort_index", "pid": 4711, "tid": 0, "args": {"sort_index": 4711}}
    other = {"ph": "X", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "x", "ts": 900.0, "dur": 200.0}
    events = [event, named, order, other, {"ph": "s", "name": "ac2g", "cat": "ac2g", "id": 5, "pid": 4711, "ts": 0.0}]
    path.write_text(json.dumps({"baseTimeNanoseconds": base_us * 1000, "traceEvents": events}))
    return path


def merged(timeline: Path, profiles: dict[int, Path]) -> list[dict[str, Any]]:
    to = timeline.with_name("both.json.gz")
    merge(timeline, profiles, to)
    events: list[dict[str, Any]] = json.loads(gzip.decompress(to.read_bytes()))["traceEvents"]
    return events


def test_profiles_are_on_the_axis_of_the_timeline(timeline: Path) -> None:
    first = profile(timeline.with_name("0.json"), EPOCH_US + BEGAN_NS // 1000 + 250)
    second = profile(timeline.with_name("1.json"), EPOCH_US + 7_000_000 + DAY_US + BEGAN_NS // 1000 + 400)
    events = merged(timeline, {1: second, 0: first})
    spans = [event for event in events if event["name"] == "aten::add"]
    assert [span["ts"] for span in spans] == [250.0, 400.0]
    assert [span["dur"] for span in spans] == [5.0, 5.0]


def test_their_processes_are_below_those_of_their_ranks(timeline: Path) -> None:
    files = {rank: profile(timeline.with_name(f"{rank}.json"), EPOCH_US) for rank in range(2)}
    events = merged(timeline, files)
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    order = {event["pid"]: event["args"]["sort_index"] for event in events if event["name"] == "process_sort_index"}
    assert [names[process] for process in sorted(order, key=order.__getitem__)] == [
        "rank 0 (host0)", "rank 0: python", "rank 1 (host1)", "rank 1: python",
    ]  # fmt: skip
    spans = [event["pid"] for event in events if event["ph"] == "X"]
    assert len(set(spans)) == 4, "each process of each profile has a number of its own"
    assert {0, 1}.isdisjoint(spans)
    assert sorted(event["id"] for event in events if event["ph"] == "s") == ["0:5", "1:5"]


def field(number: int, value: int | bytes) -> bytes:
    """A field of a message of protocol buffers."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(number: int) -> bytes:
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


def jax_folder(folder: Path, at_us: int) -> Path:
    """What jax.profiler leaves: a trace from its beginning on, and the file that has its time of day."""
    own = folder / "plugins" / "profile" / "2026_11_29_22_26_34"
    own.mkdir(parents=True)
    stats = [(3, b"other"), (4, b"profile_start_time")]
    names = b"".join(field(5, field(1, n) + field(2, field(1, n) + field(2, name))) for n, name in stats)
    values = field(6, field(1, 3) + field(3, 7)) + field(6, field(1, 4) + field(3, at_us * 1000))
    fixed = varint(9 << 3 | 1) + bytes(8) + varint(10 << 3 | 5) + bytes(4)  # fields of other kinds
    planes = field(2, b"/host:CPU") + field(3, b""), field(2, b"Task Environment") + fixed + names + values
    (own / "vm.xplane.pb").write_bytes(b"".join(field(1, plane) for plane in planes))
    args = {"long_name": "ciranda:allreduce", "Name": "grad"}
    named = {"ph": "M", "pid": 701, "name": "process_name", "args": {"name": "/host:CPU"}}
    call = {"ph": "X", "pid": 701, "tid": 1, "ts": 250.0, "dur": 5.0, "name": "allreduce", "args": args}
    (own / "vm.trace.json.gz").write_bytes(gzip.compress(json.dumps({"traceEvents": [named, call, {}]}).encode()))
    return folder


def test_a_profile_of_jax_is_on_the_axis_of_the_timeline(timeline: Path) -> None:
    folder = jax_folder(timeline.with_name("0"), EPOCH_US + BEGAN_NS // 1000)
    files = {0: folder, 1: jax_folder(timeline.with_name("1"), EPOCH_US)}
    spans = [event for event in merged(timeline, files) if event["name"] == "ciranda:allreduce"]
    assert [span["ts"] for span in spans][:1] == [250.0]
    assert len(spans) == 2
    (space,) = folder.rglob("*.xplane.pb")
    for torn in (space.read_bytes()[:-30], b"\xff" * 40, b""):
        space.write_bytes(torn)
        with pytest.raises(LaunchError, match=r"nor one of JAX with its \.xplane\.pb"):
            merged(timeline, {0: folder})
    (timeline.parent / "empty").mkdir()
    with pytest.raises(LaunchError, match="no profile"):
        merged(timeline, {0: timeline.with_name("empty")})


def test_what_cannot_be_merged(timeline: Path) -> None:
    wrong = {
        "no trace": "{",
        "no trace ": "[]",
        "torch.profiler": '{"traceEvents": []}',
    }
    for said, text in wrong.items():
        (path := timeline.with_name("wrong.json")).write_text(text)
        with pytest.raises(LaunchError, match=said.strip()):
            merged(timeline, {0: path})
    good = profile(timeline.with_name("0.json"), EPOCH_US)
    with pytest.raises(LaunchError, match="no records of rank 7"):
        merged(timeline, {7: good})
    with pytest.raises(LaunchError, match="no timeline of 'ciranda run --timeline'"):
        merge(good, {0: good}, timeline.with_name("both.json"))
    with pytest.raises(LaunchError, match="No such file"):
        merged(timeline, {0: timeline.with_name("none.json")})
