"""The parts of the timeline of all ranks that need no ranks: clocks, which calls belong together, what is written."""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import struct
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from ciranda import _core
from ciranda.launch import record_file
from ciranda.launch.clocks import N_EXCHANGES, HostClock
from ciranda.launch.collecting import Collecting
from ciranda.launch.errors import LaunchError, ProtocolError
from ciranda.launch.matching import Call, Group, Sequence
from ciranda.launch.record_file import RecordFile
from ciranda.launch.timeline import RankRecords, Summary, about, write_timeline
from ciranda.launch.timeline_steps import parse_steps
from ciranda.launch.trace_counters import TraceCounters, events_of
from ciranda.launch.trace_writer import TraceFile

DAY_NS = 86400 * 10**9
ENTRY = struct.Struct("=10Q")


def compared(clock: HostClock, at: int, ahead: int, rng: random.Random) -> int:
    """A burst of exchanges with a host, whose clock is ahead; ways take from 10 us to 1 ms. The least half trip."""
    halves = []
    for _ in range(N_EXCHANGES):
        there, back = rng.randrange(10_000, 10**6), rng.randrange(10_000, 10**6)
        clock.take(at, at + there + ahead, at + there + back)
        halves.append((there + back + 1) // 2)
        at += 10**7
    return min(halves)


def test_the_error_of_a_clock_is_within_its_bound() -> None:
    for trial in range(1000):
        rng = random.Random(trial)
        clock = HostClock()
        ahead = rng.randrange(-DAY_NS, DAY_NS)
        began = 2 * DAY_NS
        least = [compared(clock, began + minute * 60 * 10**9, ahead, rng) for minute in range(3)]
        assert clock.bound_ns == max(least)
        for _ in range(10):
            now = began + rng.randrange(-60, 300) * 10**9
            assert abs(clock.launchers(now + ahead) - now) <= clock.bound_ns


def test_a_clock_that_runs_faster() -> None:
    """50 parts in a million are 3 ms a minute, which the exchanges at both ends of it tell."""
    rng, clock = random.Random(0), HostClock()
    minute = 60 * 10**9
    for n in range(4):
        compared(clock, DAY_NS + n * minute, DAY_NS + n * 3 * 10**6, rng)
    halfway = DAY_NS + minute // 2
    assert abs(clock.launchers(halfway + DAY_NS + 15 * 10**5) - halfway) <= clock.bound_ns + 10**5


def test_the_launchers_own_clock() -> None:
    assert HostClock().launchers(5) == 5
    assert HostClock().bound_ns == 0


def groups_of(calls: list[tuple[int, int, int]], tolerance: int = 0, n_members: int = 2) -> list[list[tuple[int, int]]]:
    """The groups of calls (rank, arrived, done), as (rank, arrived)."""
    sequence, found = Sequence(), []
    for rank, arrived, done in sorted(calls, key=lambda call: call[2]):
        found += sequence.add(Call(done, rank, arrived, arrived, done, done, True, None), tolerance, n_members)
    return [sorted((call.rank, call.arrived) for call in group.calls) for group in [*found, *sequence.rest()]]


def test_calls_of_a_name_belong_together_in_their_order() -> None:
    calls = [(rank, 10 * n + rank, 10 * n + 5) for n in range(50) for rank in range(2)]
    assert groups_of(calls) == [[(0, 10 * n), (1, 10 * n + 1)] for n in range(50)]


def test_calls_that_one_rank_lacks() -> None:
    calls = [(rank, 10 * n + rank, 10 * n + 5) for n in range(50) for rank in range(2) if rank == 0 or n not in (3, 9)]
    found = groups_of(calls)
    whole = [group for group in found if len(group) == 2]
    assert all(one[1] + 1 == other[1] for one, other in whole)
    assert len(whole) == 48
    assert sorted(group for group in found if len(group) == 1) == [[(0, 30)], [(0, 90)]]


def test_a_rank_whose_records_begin_later_and_end_earlier() -> None:
    calls = [(rank, 10 * n + rank, 10 * n + 5) for n in range(50) for rank in range(2) if rank == 0 or 5 <= n < 40]
    found = groups_of(calls)
    assert len([group for group in found if len(group) == 2]) == 35
    assert len([group for group in found if len(group) == 1]) == 15


def test_clocks_that_differ_within_their_bound() -> None:
    """Rank 1's clock is 8 behind, so that it seems to be done before rank 0 comes, and to make its next call first."""
    calls = [(0, 10 * n + 4, 10 * n + 6) for n in range(50)] + [(1, 10 * n - 5, 10 * n - 2) for n in range(50)]
    assert groups_of(calls, tolerance=9) == [[(0, 10 * n + 4), (1, 10 * n - 5)] for n in range(50)]


def test_calls_among_some_ranks_do_not_pile_up() -> None:
    sequence = Sequence()
    closed: list[Group] = []
    for n in range(100):
        for rank in range(2):
            closed += sequence.add(Call(10 * n + 5 + rank, rank, 10 * n, 10 * n, 10 * n, 10 * n, True, None), 0, 0)
    assert len(closed) == 98
    assert all(len(group.calls) == 2 for group in closed)


def records(rank: int, *entries: tuple[int, ...], names: dict[int, bytes] | None = None, size: int = 2) -> RankRecords:
    """What a rank has recorded."""
    file = RecordFile()
    file.append(ENTRY.pack(record_file.MAGIC, record_file.VERSION, rank, size, *[0] * 6))
    for number, name in (names or {0: b"x"}).items():
        for at in range(0, max(1, len(name)), 64):
            file.append(struct.pack("=QQ64s", record_file.NAME, number | len(name) << 32, name[at : at + 64]))
    for entry in entries:
        file.append(ENTRY.pack(*entry, *[0] * (10 - len(entry))))
    return RankRecords(rank, "hostA", HostClock(), file)


def a_call(
    begin: int, agreed: int, done: int, name: int = 0, outcome: int = 0, process_set: int = 0
) -> tuple[int, ...]:
    first = record_file.CALL | 6 << 16 | outcome << 24 | 12 << 32
    return (first, name, process_set, 4, begin, begin, begin, agreed, agreed, done)


def written(tmp_path: Path, *ranks: RankRecords, is_elastic: bool = False) -> tuple[list[dict[str, Any]], Summary]:
    to = TraceFile(tmp_path / "t.json.gz")
    try:
        summary = write_timeline(ranks, to, 0, is_elastic)
        to.complete(about(summary, ranks, 0.0, "job", ["python"]))
    finally:
        to.close()
        for each in ranks:
            each.file.close()
    whole = json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))
    assert whole["otherData"]["calls"] == summary.n_calls
    return whole["traceEvents"], summary


def test_the_algorithm_of_a_call(tmp_path: Path) -> None:
    named = struct.pack("=QQ64s", record_file.ALGORITHM, 1, b"direct two-shot")
    with_name, without = a_call(0, 10, 20), a_call(30, 40, 50)
    mine = records(0, ENTRY.unpack(named), (with_name[0] | 1 << 40, *with_name[1:]), without)
    events, _ = written(tmp_path, mine)
    assert [call["args"].get("algorithm") for call in of_kind(events, "call")] == ["direct two-shot", None]


def of_kind(events: list[dict[str, Any]], category: str) -> list[dict[str, Any]]:
    return [event for event in events if event.get("cat") == category]


def test_overlapping_calls_have_tracks_of_their_own(tmp_path: Path) -> None:
    names = {0: b"a", 1: b"b", 2: b"c"}
    calls = (a_call(0, 20_000, 30_000, 0), a_call(10_000, 20_000, 40_000, 1), a_call(30_000, 35_000, 50_000, 2))
    events, _ = written(tmp_path, records(0, *calls, names=names))
    assert {call["name"]: call["tid"] for call in of_kind(events, "call")} == {
        "allreduce a": 1,
        "allreduce b": 2,
        "allreduce c": 1,
    }
    tracks = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert tracks == ["lane 0", "lane 0 (2)"]


@pytest.mark.parametrize("name", [b"", b"x" * 64, 'gr\u00f6\u00dfe"\\'.encode() * 20, b"\xff\n"])
def test_names(tmp_path: Path, name: bytes) -> None:
    events, _ = written(tmp_path, records(0, a_call(0, 1, 2), names={0: name}))
    assert of_kind(events, "call")[0]["args"]["tensor"] == name.decode("utf-8", "replace")


def test_nobody_is_blamed_where_it_is_not_known(tmp_path: Path) -> None:
    """For a call that failed, and for one of which a rank's record is missing."""
    failed = (a_call(0, 60_000, 70_000, outcome=3), a_call(50_000, 60_000, 70_000, outcome=3))
    alone = a_call(100_000, 160_000, 170_000)
    events, _ = written(tmp_path, records(0, failed[0], alone), records(1, failed[1]))
    assert len(of_kind(events, "call")) == 3
    assert not any("last" in call["args"] for call in of_kind(events, "call"))
    assert of_kind(events, "arrival") == []
    assert {call["args"].get("error") for call in of_kind(events, "call")} == {"RanksLost", None}


def test_a_short_wait_has_no_arrow(tmp_path: Path) -> None:
    ranks = [records(rank, a_call(rank * 9_000, 10_000, 20_000), a_call(10**6 + rank * 11_000, 1_015_000, 1_020_000))
             for rank in range(2)]  # fmt: skip
    events, _ = written(tmp_path, *ranks)
    arrows = of_kind(events, "arrival")
    assert [(event["ph"], event["pid"]) for event in arrows] == [("s", 1), ("f", 0)]
    assert [event["ts"] for event in arrows] == [1011.0, 1014.999]


def test_a_second_world_of_a_process_has_other_names(tmp_path: Path) -> None:
    one, other = records(0, a_call(0, 1, 2), names={0: b"one"}), records(0, a_call(5, 6, 7), names={0: b"other"})
    one.file.append(b"".join(other.file.pieces(1 << 20)))
    other.file.close()
    events, _ = written(tmp_path, one)
    assert [call["name"] for call in of_kind(events, "call")] == ["allreduce one", "allreduce other"]


def place(number: int, *worlds: RankRecords) -> RankRecords:
    """The records of one place of an elastic job, in one world after the other."""
    file = RecordFile()
    for world in worlds:
        file.drop_incomplete()
        file.append(b"".join(world.file.pieces(1 << 20)))
        world.file.close()
    return RankRecords(number, "hostA", HostClock(), file)


def test_ranks_of_an_elastic_job_that_change_their_numbers(tmp_path: Path) -> None:
    """Rank 0 of three is killed, and leaves half a record; the others are 0 and 1 of two, then another comes as 2."""
    first = [records(rank, a_call(1_000 + rank * 20_000, 60_000, 70_000), size=3) for rank in range(3)]
    first[0].file.append(b"torn")
    second = [records(rank, a_call(100_000 + rank * 20_000, 140_000, 150_000)) for rank in range(2)]
    third = [records(rank, a_call(200_000 + rank * 20_000, 260_000, 270_000), size=3) for rank in range(3)]
    places = (
        place(0, first[0], third[2]),
        place(1, first[1], second[0], third[0]),
        place(2, first[2], second[1], third[1]),
    )
    events, summary = written(tmp_path, *places, is_elastic=True)
    assert summary.n_calls == 8
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {0: "[0] (hostA)", 1: "[1] (hostA)", 2: "[2] (hostA)"}
    worlds = [(event["pid"], event["name"]) for event in sorted(of_kind(events, "world"), key=lambda e: e["ts"])]
    assert [name for at, name in worlds if at == 0] == ["rank 0 of 3", "rank 2 of 3"]
    assert [name for at, name in worlds if at == 2] == ["rank 2 of 3", "rank 1 of 2", "rank 1 of 3"]
    calls = sorted(of_kind(events, "call"), key=lambda call: call["ts"])
    assert [(call["pid"], call["args"]["last"]) for call in calls] == [
        *((at, 2) for at in (0, 1, 2)),
        *((at, 1) for at in (1, 2)),
        *((at, 2) for at in (1, 2, 0)),
    ]
    assert sum(event["name"] == "wait for rank 1" for event in events) == 1


def test_what_is_lost_and_missing(tmp_path: Path) -> None:
    without = RankRecords(1, "hostA", HostClock(), RecordFile())
    torn = records(0, (record_file.LOST, 7, 5), (record_file.LOST, 8, 6))
    torn.file.append(b"torn")
    events, summary = written(tmp_path, torn, without)
    assert summary.lost == {0: 15}
    assert summary.missing == [1]
    assert [event["args"]["calls"] for event in events if event["name"] == "RECORDS_LOST"] == [7, 8]


def test_records_of_another_version(tmp_path: Path) -> None:
    other = RankRecords(0, "hostA", HostClock(), RecordFile())
    other.file.append(ENTRY.pack(record_file.MAGIC, record_file.VERSION + 1, *[0] * 8))
    with pytest.raises(ProtocolError, match="same ciranda on every host"):
        written(tmp_path, other)


def test_the_numbers_are_the_engines() -> None:
    assert dict(zip(record_file.DTYPES[1:], range(15), strict=True)) == _core.DATA_TYPES


def test_steps() -> None:
    assert parse_steps("10:20") == (10, 20)
    assert parse_steps(":5") == (0, 5)
    assert parse_steps("5:") == (5, 0)
    assert parse_steps(":") == (0, 0)
    for text in ("", "5", "5:5", "6:5", ":0", "a:b", "1:2:3", "-1:2", " 1:2"):
        with pytest.raises(LaunchError, match="must be as 10:20"):
            parse_steps(text)


HOST_OF = {0: "localhost", 1: "localhost"}


def test_records_that_find_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came before is in the file, and what comes later is not taken for what is missing."""
    collecting = Collecting(HOST_OF, is_elastic=False)
    whole = next(records(0, a_call(10, 20, 30), a_call(40, 50, 60)).file.pieces(1 << 20))
    collecting.on_records(0, {"t": "records", "rank": 0, "raw": whole[: -ENTRY.size]})
    with monkeypatch.context() as patch:
        patch.setattr(RecordFile, "append", full)
        collecting.on_records(0, {"t": "records", "rank": 0, "raw": whole[-ENTRY.size :]})
    collecting.on_records(0, {"t": "records", "rank": 0, "raw": whole})
    with pytest.raises(OSError, match=f"No space left on device: '{tempfile.gettempdir()}'"):
        collecting.write(TraceFile(tmp_path / "t.json"), "job", ["python"])
    collecting.close()
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert len(of_kind(events, "call")) == 1


def full(file: RecordFile, data: bytes) -> None:
    """What fails as on a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_records_in_many_pieces_need_no_more_files() -> None:
    collecting = Collecting(HOST_OF, is_elastic=False)
    piece = {"t": "records", "rank": 0, "raw": ENTRY.pack(record_file.LOST, *[0] * 9)}
    collecting.on_records(0, piece)
    before = os.listdir("/proc/self/fd")
    for _ in range(10):
        collecting.on_records(0, piece)
    assert os.listdir("/proc/self/fd") == before
    collecting.close()


def test_counters_of_what_was_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory as it was; of links the rate between two looks, from the first on. Only what changes is written."""
    times = iter(range(10**9, 10**10, 10**9))
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(times))
    counters = TraceCounters(0)

    def look(memory: int, sent: int, seconds: float, **more: int) -> None:
        links = {"sent_bytes": sent, "received_bytes": 0, "retries": 0, "queued_bytes": 9}
        of_rank = {"rank": 3, "pid": 1, "generation": 2, "seconds": seconds, "all_links": links}
        counters.take([{**of_rank, "memory_bytes_of": {"slot": memory}, **more}, {"rank": 4}])

    look(5, 100, 1.0)
    look(5, 300, 2.0)
    look(7, 500, 3.0)
    look(7, 500, 4.0)
    look(0, 50, 1.0, generation=4)  # of another world: nothing is known of its links before
    found = [json.loads(event) for event in events_of(counters.file, 0, 1 << 62)]
    assert [(each["ts"], each["name"], *each["args"].values()) for each in found] == [
        (1e6, "engine memory", 5), (1e6, "links", 200, 0, 0), (3e6, "engine memory", 7), (3e6, "links", 0, 0, 0),
        (5e6, "engine memory", 0),
    ]  # fmt: skip
    assert [*found[1]["args"]] == ["sent bytes/s", "received bytes/s", "retries/s"]
    assert {each["pid"] for each in found} == {3}
    some = [json.loads(event) for event in events_of(counters.file, 2 * 10**9, 4 * 10**9)]
    assert [(each["ts"], each["name"]) for each in some] == [
        (2e6, "engine memory"), (3e6, "engine memory"), (2e6, "links"), (3e6, "links"),
    ]  # fmt: skip
    assert [*events_of(counters.file, 2, 1)] == [], "nothing was recorded"
    counters.file.close()


def test_a_compressed_trace_on_a_full_disk() -> None:
    """Whoever has learned of it from complete() is not told again by close()."""
    trace = TraceFile(Path("/dev/full"))
    trace._to = gzip.GzipFile("", "wb", 3, trace._file)  # type: ignore[assignment]  # as of a name with .gz
    for _ in range(8192):
        trace.put(json.dumps(os.urandom(64).hex()))
    with pytest.raises(OSError, match="No space left"):
        trace.complete({})
    trace.close()
