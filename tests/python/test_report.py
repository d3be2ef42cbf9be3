"""What `ciranda report` makes of what a job has left, where the job is made up."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ciranda.launch import record_file
from ciranda.launch.errors import LaunchError
from ciranda.launch.job_log import NAME
from ciranda.launch.page import COLLECTIVES, PATHS
from ciranda.report import comparison_of, comparison_page, facts_of, page_of, read, units
from ciranda.report.advice import advice_of
from ciranda.report.steps import series_of
from ciranda.report.svg import Part, bars
from ciranda.report.unlike import unlike_others

HOSTILE = "</title><script>alert('\"&')</script>"
ENTRY = struct.Struct("=10Q")
MS = 1_000_000
PLAN = PATHS.index("plan")

TAGS = {
    "b", "body", "circle", "code", "div", "h1", "h2", "h3", "head", "header", "html", "i", "li", "line", "main", "meta",
    "ol", "p", "polyline", "pre", "rect", "section", "span", "style", "svg", "table", "tbody", "td", "text", "th",
    "thead", "title", "tr", "ul",
}  # fmt: skip

Line = dict[str, Any]


def a_job(hosts: dict[str, list[int]], **fields: Any) -> Line:
    about = {"job": "ab" * 8, "began": 1.8e9, "command": ["python", "train.py"], "elastic": False, "settings": {}}
    return {"kind": "job", "at": 0.1, "format": 1, "hosts": hosts, "version": "1.0", **about, **fields}


def counters(rank: int, **fields: Any) -> Line:
    """A rank's that has counted nothing."""
    empty: Line = {"own_waits_ns": {}, "held_up_ns": {}, "collectives": {}, "paths": {}}
    zeros = dict.fromkeys(("seconds", "steps", "last_step_seconds", "waiting", "waited_seconds", "stalls"), 0)
    used = {"memory_bytes": 1 << 20, "cpu_seconds": 0.5, "runs": True, "host": "a", "warning": ""}
    return {"pid": 100 + rank, "rank": rank, "size": 2, **zeros, **empty, **used, **fields}


def look(at: float, *ranks: Line) -> Line:
    return {"kind": "counters", "at": at, "ranks": ranks}


def an_end(at: float, **fields: Any) -> Line:
    return {"kind": "end", "at": at, "exit_code": 0, "message": None, "interrupted_by": None, "failed": None, **fields}


def left(folder: Path, *lines: Line, rest: str = "") -> dict[str, Any]:
    """The facts of a job with this log."""
    folder.mkdir(exist_ok=True)
    (folder / NAME).write_text("".join(f"{json.dumps(line)}\n" for line in lines) + rest)
    facts = facts_of(read(folder))
    page_of(json.loads(json.dumps(facts)))  # they are plain values
    return facts


def tags_of(page: str) -> set[str]:
    """The names of the tags that begin or end in a page."""
    found = set()

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            found.add(tag)

        def handle_endtag(self, tag: str) -> None:
            found.add(tag)

    Tags().feed(page)
    return found


def a_call(*at_ms: float, name: int = 0, n_bytes: int = 4096, path: int = PLAN, outcome: int = 0) -> tuple[int, ...]:
    """Submitted, ready, agreed, done; it starts when it is agreed."""
    submitted, ready, agreed, done = (round(each * MS) for each in at_ms)
    first = record_file.CALL | COLLECTIVES.index("allreduce") << 8 | path << 16 | outcome << 24 | 12 << 32
    return (first, name, 0, n_bytes, submitted, submitted, ready, agreed, agreed, done)


def a_step(number: int, at_ms: float) -> tuple[int, ...]:
    return (record_file.STEP, number, round(at_ms * MS))


def record(
    folder: Path, rank: int, *entries: Sequence[int], names: Sequence[str] = ("grad",), algorithms: Sequence[str] = ()
) -> None:
    """Write the records of a rank."""
    data = ENTRY.pack(record_file.MAGIC, record_file.VERSION, *[0] * 8)
    for number, name in enumerate(names):
        raw = name.encode()
        data += struct.pack("=2Q64s", record_file.NAME, number | len(raw) << 32, raw)
    for number, name in enumerate(algorithms):
        data += struct.pack("=2Q64s", record_file.ALGORITHM, number + 1, name.encode())
    data += b"".join(ENTRY.pack(*entry, *[0] * (10 - len(entry))) for entry in entries)
    (folder / f"rank.{rank}").mkdir(parents=True)
    (folder / f"rank.{rank}" / "records").write_bytes(data + b"torn")


# -- the log ----------------------------------------------------------------------------------------------------------


def test_looks_before_any_rank_has_come(tmp_path: Path) -> None:
    """As on a machine so busy that ranks start for seconds."""
    steps = [look(at, counters(0, steps=at)) for at in (3.0, 4.0)]
    facts = left(tmp_path, a_job({"a": [0]}), look(1.0), look(2.0), *steps, an_end(9.0))
    assert [(each["from"], each["until"]) for each in facts["intervals"]] == [(3.0, 4.0)]


def test_where_the_time_goes_by_the_counters(tmp_path: Path) -> None:
    moves = {"allreduce": {"calls": 10, "failed": 1, "bytes": 4_000_000, "agree_seconds": 4.0, "move_seconds": 1.0}}
    told = {"seconds": 12.0, "steps": 100, "last_step_seconds": 10.0, "collectives": moves}
    facts = left(
        tmp_path,
        a_job({"a": [0, 1]}),
        look(1.0, counters(0), counters(1)),
        look(2.0, counters(0, seconds=1.0, steps=10, held_up_ns={"1": 500_000_000}),
                  counters(1, seconds=1.0, steps=10)),
        look(12.0, counters(0, **told, waited_seconds=6.0, held_up_ns={"1": 6_000_000_000}, cpu_seconds=9.9,
                            runs=False, memory_bytes=0, peak_memory_bytes=7 << 20), counters(1, **told, runs=False)),
        an_end(12.5),
    )  # fmt: skip
    first, second = facts["ranks"]
    assert (first["computed_seconds"], first["waited_seconds"], first["moved_seconds"]) == (3.0, 6.0, 1.0)
    assert (second["computed_seconds"], second["waited_for_seconds"]) == (9.0, 6.0)
    assert (first["peak_memory_bytes"], second["peak_memory_bytes"]) == (7 << 20, 1 << 20)
    assert (facts["end"]["how"], facts["job"]["seconds"]) == ("succeeded", 12.5)
    (interval,) = facts["intervals"]  # that to the last look is no time in which the ranks ran
    assert [rank["waited_for"] for rank in interval["ranks"]] == [0.0, 0.5]
    assert facts["collectives"] == [
        {
            "collective": "allreduce",
            "calls": 20,
            "failed": 2,
            "bytes": 8_000_000,
            "agree_seconds": 8.0,
            "move_seconds": 2.0,
        }
    ]
    (waiting, moving) = facts["advice"]
    assert waiting["gain"] == 0.6
    assert "The others wait for rank 1 (a); it sleeps" in waiting["text"]
    assert moving["gain"] == 0.05


def test_why_a_rank_is_slow(tmp_path: Path) -> None:
    """Of its last process alone, between the looks at it while it ran."""
    signs = dict.fromkeys(("stopped_looks", "slept_looks", "thread_looks", "input_looks", "core_wait_seconds",
                           "disk_wait_seconds", "yielded", "preempted", "throttled_seconds", "disk_pressure_seconds",
                           "memory_pressure_seconds"), 0)  # fmt: skip
    told: Line = {"seconds": 10.0, "steps": 100, "held_up_ns": {"1": 6_000_000_000}, "waited_seconds": 6.0}

    def ranks(looks: int, cpu: float, throttled: float, **more: Any) -> list[Line]:
        slow = {"looks": looks, "cpu_seconds": cpu, "throttled_seconds": throttled}
        return [counters(0, **{**told, **more}), counters(1, **{**told, "held_up_ns": {}, **signs, **slow})]

    log = [a_job({"a": [0, 1]}), look(1.0, *ranks(1, 2.0, 100.0)), look(11.0, *ranks(2, 6.0, 106.0))]
    ended = look(12.0, *[{**rank, "runs": False} for rank in ranks(2, 6.0, 106.0)])
    del ended["ranks"][1]["looks"]
    facts = left(tmp_path, *log, ended, an_end(12.0))
    did = facts["ranks"][1]["doing"]
    assert did["words"] == "was throttled by its cgroup's limit 60% of the time (kept 40% of a core busy)"
    assert did["throttled"] == pytest.approx(0.6)
    assert facts["ranks"][0]["doing"] is None
    assert "rank 1 (a); it was throttled" in facts["advice"][0]["text"]
    assert "Raise the limit of its cgroup" in facts["advice"][0]["text"]
    command = "'ciranda stacks --ranks 1 --samples 40' names the lines."
    assert facts["advice"][0]["text"].endswith(f"While such a job runs, {command}")


def test_what_sets_a_slow_rank_apart(tmp_path: Path) -> None:
    """All of a busy machine sleep mostly, and lack cores; the slow one does so more, and the advice is about that."""
    signs = dict.fromkeys(("stopped_looks", "slept_looks", "thread_looks", "input_looks", "core_wait_seconds",
                           "disk_wait_seconds", "yielded", "preempted", "throttled_seconds", "disk_pressure_seconds",
                           "memory_pressure_seconds"), 0)  # fmt: skip
    told: Line = {"seconds": 10.0, "steps": 100, "waited_seconds": 3.6, **signs, "looks": 1, "cpu_seconds": 0.0}

    def ranks(lacked: float, cpu: float, n_looks: int) -> list[Line]:
        found = []
        for rank in range(4):
            mine = {**told, "looks": 1 + n_looks, "slept_looks": n_looks * 0.44, "core_wait_seconds": lacked * 0.3,
                    "cpu_seconds": cpu * 0.25, "held_up_ns": {"2": 4 * 10**9} if rank == 0 else {}}  # fmt: skip
            is_slow = {"core_wait_seconds": lacked, "cpu_seconds": cpu} if rank == 2 else {}
            found.append(counters(rank, **{**mine, **is_slow}))
        return found

    log = [look(1.0, *ranks(0.0, 0.0, 0)), look(11.0, *ranks(4.0, 0.52, 20))]
    facts = left(tmp_path, a_job({"a": [0, 1, 2, 3]}), *log, an_end(12.0))
    assert [rank["doing"]["mostly"] for rank in facts["ranks"]] == ["sleeps"] * 4
    assert [bool(rank["unlike_others"]) for rank in facts["ranks"]] == [False, False, True, False]
    assert facts["ranks"][2]["unlike_others"]["mostly"] == "no core"
    said = (
        "it waited for a core 40% of the time (the others 12%), and used 5% of a core (the others 1%). Give it as much"
    )
    assert said in facts["advice"][0]["text"]
    assert '<td class="number">sleeps</td><td class="number">no core</td>' in page_of(facts)


def test_the_others_of_a_rank() -> None:
    """Their median is without the rank itself: of two, each is compared with the other."""
    nothing = dict.fromkeys(("stopped", "throttled", "lacked_core", "disk", "memory", "slept", "thread", "input"), 0.0)

    def unlike(*cpus: float | None) -> list[str | None]:
        doing = [None if cpu is None else {**nothing, "cpu": cpu} for cpu in cpus]
        return [each["words"] if each else None for each in unlike_others([{"doing": each} for each in doing])]

    assert unlike(0.9, 0.5) == ["used 90% of a core (the others 50%)", None]
    assert unlike(0.1, 0.9, 0.3) == [None, "used 90% of a core (the others 20%)", None]
    assert unlike(0.9, None) == [None, None]
    assert unlike(0.0, 0.3, 0.9)[1] is None, "the others of the middle one have 0.45"
    assert unlike(0.4, 0.9, 0.8, 0.6)[1:3] == [f"used {share}% of a core (the others 60%)" for share in (90, 80)]


def test_a_log_that_ends_before_the_job(tmp_path: Path) -> None:
    facts = left(tmp_path, a_job({"a": [0]}), look(1.0, counters(0)), rest='{"kind": "counters", "at')
    assert facts["end"]["how"] == "unknown"
    assert "its launcher was killed, the disk was full, or the job goes on elsewhere" in page_of(facts)


def test_a_job_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its launcher answers, until it ends while the report is made."""
    log = "".join(f"{json.dumps(line)}\n" for line in a_job_with_a_hang(40))
    (tmp_path / NAME).write_text(log)
    running: list[tuple[str, Line]] = [("cd" * 8, {}), ("ab" * 8, {})]
    monkeypatch.setattr("ciranda.launch.control.jobs", lambda: iter(running))
    facts = facts_of(read(tmp_path))
    assert facts["end"]["how"] == "running"
    assert facts["advice"][0]["text"].startswith(
        "The job hangs: the others have waited 30.0 s for rank 1 (b), which stands at load_batch, data.py:4. See"
    )
    page = page_of(facts)
    assert "now, all wait for rank 1" in page
    assert "The log ends before the job" not in page

    def end() -> Any:
        (tmp_path / NAME).write_text(log + json.dumps(an_end(42.0)))
        return iter(())

    monkeypatch.setattr("ciranda.launch.control.jobs", end)
    assert facts_of(read(tmp_path))["end"]["how"] == "succeeded"


def test_looks_that_found_no_rank(tmp_path: Path) -> None:
    """As those at the end of a job, of agents that have ended meanwhile."""
    looks = [look(0.5), look(1.0), look(2.0, counters(0)), look(3.0, counters(0)), look(4.0), look(5.0)]
    facts = left(tmp_path, a_job({"a": [0]}), *looks, an_end(6.0))
    assert [(interval["from"], interval["until"]) for interval in facts["intervals"]] == [(2.0, 3.0)]


def test_a_job_that_was_not_counted(tmp_path: Path) -> None:
    """As an elastic one, or one whose ranks never came."""
    facts = left(tmp_path, a_job({"a": [0, 1]}), an_end(1.0, exit_code=1, message="no answer from b"))
    assert facts["ranks"] == facts["intervals"] == []
    assert [each["text"] for each in facts["advice"]] == ["The job failed: no answer from b"]
    assert "were not counted" in page_of(facts)


def test_stalls_come_first(tmp_path: Path) -> None:
    stall = {"kind": "stall", "at": 3.0, "rank": 1, "host": "a", "where": "load_batch, data.py:4"}
    facts = left(tmp_path, a_job({"a": list(range(11))}), look(1.0, counters(0), counters(1)), stall, an_end(9.0))
    assert facts["advice"][0]["text"] == (
        "Others waited long for rank 1 (a): load_batch, data.py:4. Its stacks are in rank.01/stacks.txt."
    )


def a_job_with_a_hang(until: int, rest: Sequence[Line] = ()) -> list[Line]:
    """The log of a job of ten steps a second, in which rank 1 makes no call from the tenth second to that one."""

    def at(second: float) -> Line:
        steps = 10 * min(second, 10)
        waits = max(0.0, second - 10)
        call = {"name": "grad", "collective": "allreduce", "process_set": 0, "lane": 0, "bytes": 8, "agreed": False}
        told = {"seconds": second, "steps": steps, "calls": steps, "last_step_seconds": min(second, 10.0)}
        here = {"in_flight": 1, "calls_in_flight": [{**call, "seconds": waits}]} if waits else {}
        held_up = {"1": round(min(second, 10.0) * 10**8)}
        first = counters(0, **told, **here, waited_seconds=min(second, 10.0) * 0.1 + waits, held_up_ns=held_up)
        second_rank = counters(1, **told, in_flight=0, calls_in_flight=[], cpu_seconds=second)
        return look(second + 1, *({**rank, "host": "b"} for rank in (first, second_rank)))

    stall = {"kind": "stall", "at": 21.0, "rank": 1, "host": "b", "where": "load_batch, data.py:4"}
    looks = [at(float(second)) for second in range(1, until + 1)]
    return [a_job({"b": [0, 1]}), *looks[:20], stall, *looks[20:], *rest]


def test_a_rank_that_hangs_until_the_end(tmp_path: Path) -> None:
    """Its time gains nothing, and all figures leave it out: others have waited for 29 s, of which none is booked."""
    facts = left(tmp_path, *a_job_with_a_hang(40), an_end(41.5, exit_code=143, interrupted_by=15))
    assert facts["end"]["hang"] == {
        "rank": 1, "host": "b", "where": "load_batch, data.py:4", "begin": 11.0, "end": 41.0, "seconds": 30.0,
        "is_over": False,
    }  # fmt: skip
    (advice,) = facts["advice"]
    assert advice["gain"] is None
    assert advice["text"] == (
        "The job hung when it ended: the others had waited 30.0 s for rank 1 (b), which stood at load_batch, "
        "data.py:4. Its stacks are in rank.1/stacks.txt."
    )
    first, second = facts["ranks"]
    assert (first["seconds"], first["waited_seconds"]) == (9.0, pytest.approx(0.9))
    assert (second["seconds"], second["waited_for_seconds"]) == (9.0, pytest.approx(0.9))
    assert second["cpu_seconds"] == 9.0
    assert first["calls_in_flight"][0]["seconds"] == 30.0, "that of the last look"
    page = page_of(facts)
    assert "<b>5.0%</b><span>of the ranks&#x27; time is waiting" in page
    assert "<b>30.0 s</b><span>at the end, all waited for rank 1" in page
    assert page.count("without the 30.0 s at the end in which the others waited for rank 1") == 2


def test_a_rank_that_goes_on_after_a_hang(tmp_path: Path) -> None:
    """The wait is booked on it then; it gains nothing, the time before does."""
    told = {"seconds": 40.0, "steps": 200, "calls": 200, "last_step_seconds": 40.0}
    last = look(41.0, counters(0, **told, waited_seconds=31.0, held_up_ns={"1": 31 * 10**9}), counters(1, **told))
    facts = left(tmp_path, *a_job_with_a_hang(30), last, an_end(41.5))
    assert facts["end"]["hang"] is None
    assert [(each["end"], each["is_over"]) for each in facts["hangs"]] == [(31.0, True)]
    assert facts["ranks"][1]["waited_for_seconds"] == 31.0
    assert facts["advice"][0]["text"].startswith("Others waited long for rank 1 (b): load_batch, data.py:4.")
    assert facts["advice"][1]["gain"] == pytest.approx(11 / 40), "of 31 s, 20 are the hang's"


def test_a_hang_that_is_warned_of_again(tmp_path: Path) -> None:
    again = {"kind": "stall", "at": 35.0, "rank": 1, "host": "b", "where": "load_batch, data.py:5"}
    late = {**again, "at": 41.2, "where": "load_batch, data.py:6"}
    facts = left(tmp_path, *a_job_with_a_hang(40, (again, late)), an_end(41.5))
    assert [(each["where"], each["seconds"]) for each in facts["hangs"]] == [("load_batch, data.py:6", 30.0)]


def test_a_hang_in_an_elastic_job(tmp_path: Path) -> None:
    """Rank 1 hangs until it is replaced: its first world is told without that, and the job did not end so."""
    call = {"name": "grad", "collective": "allreduce", "process_set": 0, "lane": 0, "bytes": 8, "agreed": False}

    def at(second: float, world: str, calls: int, waited: float = 0.0) -> Line:
        told: Line = {"steps": calls, "calls": calls, "last_step_seconds": min(second, 2.0), "in_flight": 0,
                      "calls_in_flight": []}  # fmt: skip
        first = {**told, "waited_seconds": waited}
        if waited:
            first |= {"in_flight": 1, "calls_in_flight": [{**call, "seconds": waited}]}
        process = f"{7 if waited or world == '1' else 9}.{world}"
        return look(second + (20.0 if world == "2" else 0.0), in_world(0, 0, f"6.{world}", 2, second, **first),
                    in_world(1, 1, process, 2, second, **told))  # fmt: skip

    stall = {"kind": "stall", "at": 12.0, "rank": 1, "host": "a", "where": "load, data.py:4"}
    hung = [at(second, "1", 20, second - 2) for second in (8.0, 13.0, 18.0)]
    log = [at(1.0, "1", 10), at(2.0, "1", 20), *hung[:1], stall, *hung[1:], at(1.0, "2", 10), at(2.0, "2", 20)]
    facts = left(tmp_path, a_job({"a": [0, 1]}, elastic=True), *log, an_end(23.0))
    assert [(hang["begin"], hang["end"], hang["is_over"]) for hang in facts["hangs"]] == [(2.0, 18.0, False)]
    assert facts["end"]["hang"] is None
    assert [world["waited"] for world in facts["worlds"]] == [0.0, 0.0]
    assert facts["advice"][0]["text"].startswith("Others waited long for rank 1 (a): load, data.py:4.")


def test_a_hang_before_its_first_warning(tmp_path: Path) -> None:
    """The others have waited for 9 s, which is no slow step; of 2 s it is."""
    facts = left(tmp_path, *a_job_with_a_hang(19)[:-1], an_end(20.5, exit_code=143, interrupted_by=15))
    assert [each["text"] for each in facts["advice"]] == [
        "The job hung when it ended: the others had waited 9.00 s for rank 1 (b)."
    ]
    assert facts["ranks"][1]["waited_for_seconds"] == pytest.approx(0.9)
    facts = left(tmp_path, *a_job_with_a_hang(12)[:-1], an_end(13.5))
    assert facts["hangs"] == []
    failed = {"rank": 1, "host": "b", "how": "killed by SIGKILL"}
    facts = left(tmp_path, *a_job_with_a_hang(19)[:-1], an_end(20.5, exit_code=137, failed=failed))
    assert facts["hangs"] == [], "a rank that was lost is to blame"


def test_a_hang_before_the_first_step(tmp_path: Path) -> None:
    """There is nothing to leave it out of: one look is kept, at which nobody had waited yet or all had."""
    call = {"name": "grad", "collective": "allreduce", "process_set": 0, "lane": 0, "bytes": 8, "agreed": False}
    looks = [
        look(at, counters(0, calls=0, in_flight=1, calls_in_flight=[{**call, "seconds": at - 1}]),
                 counters(1, calls=0, in_flight=0, calls_in_flight=[]))
        for at in (2.0, 12.0, 22.0)
    ]  # fmt: skip
    stall = {"kind": "stall", "at": 11.0, "rank": 1, "host": "a", "where": "load, data.py:4"}
    facts = left(tmp_path, a_job({"a": [0, 1]}), *looks, stall, an_end(23.0))
    assert facts["end"]["hang"]["seconds"] == 21.0
    assert len(facts["ranks"]) == 2


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    record(tmp_path, 0, a_step(1, 1), a_call(1, 2, 3, 4), a_step(2, 5), (record_file.LOST, 7, 0))
    record(tmp_path, 2, a_step(1, 1), a_call(1, 2, 3, 4), a_step(2, 5))
    kept = {"kind": "records", "at": 9.0, "clocks": {}, "failure": "No space left on device: /tmp"}
    ranks = [counters(rank) for rank in range(3)]
    facts = left(tmp_path, a_job({"a": [0, 1, 2], "b": [3]}), look(1.0, *ranks), kept, an_end(9.5))
    assert facts["missing"] == [
        "Not all recorded calls could be kept (No space left on device: /tmp): the steps are those before.",
        "There are no recorded calls of ranks 1, 3: they are in no figure on recorded steps.",
        "7 calls came faster than they could be recorded: they are in no such figure.",
        "The counters of rank 3 were never read: they never ran, or their host was lost before.",
    ]
    page = page_of(facts)
    assert all(escape(sentence) in page for sentence in facts["missing"])


def test_nothing_is_missing(tmp_path: Path) -> None:
    facts = left(tmp_path, a_job({"a": [0]}), look(1.0, counters(0)), an_end(9.5))
    assert facts["missing"] == []
    assert "What is missing here" not in page_of(facts)
    assert "most for rank" not in page_of(facts), "which only records tell"


def test_records_without_a_call(tmp_path: Path) -> None:
    kept = {"kind": "records", "at": 9.0, "clocks": {}}
    facts = left(tmp_path, a_job({"a": [0]}), look(1.0, counters(0)), kept, an_end(9.5))
    assert facts["missing"] == [
        "No rank has recorded a call: the recorded steps did not come, or the ranks ended before."
    ]


def in_world(place: int, world_rank: int, process: str, size: int, seconds: float, **fields: Any) -> Line:
    """``process``: its number and that of its world, as 7.1."""
    pid, generation = map(int, process.split("."))
    return counters(place, world_rank=world_rank, pid=pid, generation=generation, size=size, seconds=seconds, **fields)


def test_an_elastic_job(tmp_path: Path) -> None:
    """Place 0's process ends; place 1 is rank 0 then, with the same process; another takes place 0, as rank 1."""
    calls = {"calls": 3, "failed": 0, "bytes": 24, "agree_seconds": 1.0, "move_seconds": 0.5}
    told = {"steps": 10, "last_step_seconds": 2.0, "calls": 3, "collectives": {"allreduce": calls}}
    ended = {**told, "cpu_seconds": 1.0, "runs": False}
    waits = {"held_up_ns": {"1": 1_500_000_000}, "waited_seconds": 1.5}
    facts = left(
        tmp_path,
        a_job({"a": [0, 1]}, elastic=True),
        look(1.0, in_world(0, 0, "7.1", 2, 0.5), in_world(1, 1, "8.1", 2, 0.5)),
        look(
            2.5, in_world(0, 0, "7.1", 2, 2.0, **told, **waits, cpu_seconds=1.0), in_world(1, 1, "8.1", 2, 2.0, **told)
        ),
        look(9.0, in_world(0, 0, "7.1", 2, 8.5, **ended, **waits), in_world(1, 0, "8.2", 1, 1.0, steps=5)),
        look(11.0, in_world(0, 1, "9.1", 2, 1.0, cpu_seconds=0.25), in_world(1, 0, "8.3", 2, 1.0)),
        look(
            12.0, in_world(0, 1, "9.1", 2, 2.0, **told, cpu_seconds=0.5), in_world(1, 0, "8.3", 2, 2.0, **told, **waits)
        ),
        an_end(12.5),
    )
    assert [(world["ranks"], world["size"], world["steps"], world["waited_for"]) for world in facts["worlds"]] == [
        ([0, 1], 2, 10, 1), ([1], 1, 5, None), ([1, 0], 2, 10, 0),
    ]  # fmt: skip
    assert [world["from"] for world in facts["worlds"]] == [0.5, 8.0, 10.0]
    assert facts["worlds"][0]["until"] == 2.5, "not as old as the page of a process that has ended"
    first, second = facts["ranks"]
    assert (first["rank"], first["steps"], first["calls"], first["cpu_seconds"]) == (0, 20, 6, 1.5)
    assert (second["rank"], second["steps"], second["calls"], second["waited_for_seconds"]) == (1, 25, 6, 1.5)
    assert (first["waited_for_seconds"], second["cpu_seconds"]) == (1.5, 0.5)
    assert facts["collectives"][0]["calls"] == 12
    assert [(interval["from"], [rank["rank"] for rank in interval["ranks"]]) for interval in facts["intervals"]] == [
        (1.0, [0, 1]), (11.0, [1, 0]),
    ]  # fmt: skip
    assert facts["intervals"][1]["ranks"][1]["waited_for"] == 1.0, "place 0 is rank 1"
    assert "This job is elastic" in page_of(facts)


def test_a_place_that_comes_later_is_in_the_picture(tmp_path: Path) -> None:
    alone = [look(float(at), in_world(0, 0, "7.1", 1, float(at))) for at in (1, 2)]
    both = [look(4.0 + at, in_world(0, 0, "7.2", 2, at), in_world(1, 1, "8.1", 2, at)) for at in (1.0, 2.0)]
    facts = left(tmp_path, a_job({"a": [0]}, elastic=True), *alone, *both, an_end(9.0))
    series = series_of(facts)
    assert series is not None
    assert series.waited_for.keys() == {0, 1}
    assert facts["ranks"][1]["host"] == "a"


def a_stall(folder: Path, rank: int, waited_for: list[int], where: str, *calls: Line) -> None:
    """Write a rank's stall.json."""
    in_flight = {"name": "grad", "collective": "allreduce", "process_set": 0, "lane": 0, "bytes": 8, "agreed": False}
    stall = {
        "calls_in_flight": [] if rank in waited_for else [{**in_flight, "seconds": 2.0 + rank}],
        "time": "2027-01-15T08:00:00Z", "rank": rank, "host": "a", "is_waited_for": rank in waited_for, "threads": [],
        "waited_for": waited_for, "where": where, "calls": calls, "warning": "", "counters": {"waiting": 2, "steps": 7},
    }  # fmt: skip
    (folder / f"rank.{rank}").mkdir(parents=True)
    (folder / f"rank.{rank}" / "stall.json").write_text(json.dumps(stall))


def a_waiting_call(name: str, waited: float, made: list[int], *missing: tuple[int, str | None], **more: int) -> Line:
    return {
        "name": name, "waited_seconds": waited, "submitted_by": made, "n_more_submitted": 0, "n_more_missing": 0,
        "missing": [{"rank": rank, "host": "a", "last": last, "seconds": 1.0} for rank, last in missing], **more,
    }  # fmt: skip


def test_the_first_call_that_differs(tmp_path: Path) -> None:
    calls = (
        a_waiting_call("later", 1.0, [0], (1, "loss"), (2, "loss")),
        a_waiting_call("grad", 2.0, [0, 3], (1, "loss"), (2, "loss"), (4, None)),
    )
    a_stall(tmp_path, 0, [1, 2, 4], "train, t.py:9", *calls)
    for rank in (1, 2):
        a_stall(tmp_path, rank, [1, 2, 4], "load, data.py:4")
    a_stall(tmp_path, 3, [1, 2, 4], "train, t.py:9")
    facts = left(tmp_path, a_job({"a": [0, 1, 2, 3, 4]}), an_end(9.0))
    said = (
        "The first call that differs is 'grad': ranks 0, 3 have made it; ranks 1, 2 have not: they made 'loss' last, "
        "and stood at load, data.py:4; rank 4 has not: it made no call before."
    )
    assert [each["text"] for each in facts["advice"]] == [said]
    assert [call["name"] for call in facts["standstill"]["calls"]] == ["grad", "later"]
    page = page_of(facts)
    assert escape(said) in page
    assert "<td>0, 3</td><td>train, t.py:9</td>" in page, "ranks at one place are one row"
    assert page.count(escape("allreduce 'grad', for ")) == 1
    assert escape("allreduce 'grad', for 5.0 s") in page, "the oldest of ranks 0 and 3"


def test_ranks_that_call_in_other_orders(tmp_path: Path) -> None:
    calls = (a_waiting_call("a", 2.0, [0], (1, "b")), a_waiting_call("b", 2.0, [1], (0, "a"), n_more_missing=3))
    a_stall(tmp_path, 0, [0, 1], "t.py:9", *calls)
    facts = left(tmp_path, a_job({"a": [0, 1]}), an_end(9.0))
    assert facts["advice"][0]["text"] == (
        "The first call that differs is 'a': rank 0 has made it; rank 1 has not: it made 'b' instead."
    )


def test_what_a_killed_rank_was_in(tmp_path: Path) -> None:
    call = {"name": "grad", "collective": "allreduce", "process_set": 3, "lane": 0, "bytes": 8, "agreed": True}
    last = look(
        8.0, counters(0, runs=False), counters(1, runs=False, in_flight=1, calls_in_flight=[{**call, "seconds": 7.0}])
    )
    failed = {"rank": 1, "host": "a", "how": "killed by SIGKILL"}
    facts = left(tmp_path, a_job({"a": [0, 1]}), last, an_end(9.0, exit_code=137, failed=failed))
    assert facts["advice"][0]["text"].startswith(
        "Rank 1 (a) failed first: killed by SIGKILL. It was in allreduce 'grad' of process set 3. The end of its output"
    )


def test_what_a_killed_rank_did_last(tmp_path: Path) -> None:
    call = {"name": "grad", "collective": "allreduce", "process_set": 0, "lane": 0, "bytes": 8, "failed": ""}
    before = {**call, "name": "loss"}
    calls = [{**each, "seconds": 0.1, "ago_seconds": 3.0 + n} for n, each in enumerate((call, before))]
    last = look(8.0, counters(0, runs=False), counters(1, runs=False, last_calls=calls))
    failed = {"rank": 1, "host": "a", "how": "exited with code 1"}
    facts = left(tmp_path, a_job({"a": [0, 1]}), last, an_end(9.0, exit_code=1, failed=failed))
    assert "The last call that is known of it is allreduce 'grad', which had ended." in facts["advice"][0]["text"]
    assert [each["name"] for each in facts["ranks"][1]["last_calls"]] == ["grad", "loss"]


def test_a_rank_that_lacks_a_later_call_of_the_same_name(tmp_path: Path) -> None:
    a_stall(tmp_path, 0, [1], "t.py:9", a_waiting_call("grad", 2.0, [0], (1, "grad")))
    facts = left(tmp_path, a_job({"a": [0, 1]}), an_end(9.0))
    assert facts["advice"][0]["text"].endswith("rank 1 has not: it made the one of that name before it last.")


@pytest.mark.parametrize("text", ["", "7", "{}", '{"calls": 7, "counters": {}}', '{"time": "x", "counters": {}}'])
def test_a_stall_file_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "rank.0").mkdir()
    (tmp_path / "rank.0" / "stall.json").write_text(text)
    assert left(tmp_path, a_job({"a": [0]}), an_end(9.0))["standstill"] is None


@pytest.mark.parametrize("text", ["", '{"kind": "job", "at": 0, "format": 99, "hosts": {}}\n', "[]\nnull\n7\n"])
def test_what_is_no_log(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(LaunchError, match="no log of a job of format 1"):
        read(tmp_path)


# -- the records ------------------------------------------------------------------------------------------------------


def test_where_the_time_goes_by_the_records(tmp_path: Path) -> None:
    """Rank 1 comes 40 ms late to the first call of each step; the second overlaps the first, and adds 5 ms."""
    for rank, late in enumerate((0, 40)):
        entries = [a_step(1, 0)]
        for step in range(1, 4):
            begin = (step - 1) * 100
            entries += [
                a_call(begin + 10 + late, begin + 10 + late, begin + 52, begin + 60),
                a_call(begin + 55, begin + 55, begin + 56, begin + 65, name=1, n_bytes=100),
                a_step(step + 1, begin + 100),
            ]
        record(tmp_path, rank, *entries, names=("grad", "b"))
    told = [counters(0, seconds=0.4, waited_seconds=0.16), counters(1, seconds=0.4)]
    facts = left(tmp_path, a_job({"a": [0, 1]}), look(1.0, *told), an_end(9.0))
    recorded = facts["recorded"]
    assert (recorded["first_step"], recorded["steps"], recorded["median_step_seconds"]) == (2, 3, 0.1)
    first, second = recorded["ranks"]
    names = ("computed_seconds", "waited_seconds", "agreed_seconds", "moved_seconds")
    assert [round(first[name], 9) for name in names] == [0.135, 0.120, 0.006, 0.039]
    assert [round(second[name], 9) for name in names] == [0.255, 0.0, 0.006, 0.039]
    assert first["waited_for"] == {"1": pytest.approx(0.12)}
    assert second["median_held_up_seconds"] == pytest.approx(0.04)
    assert recorded["waited_for_seconds"] == [[0.0] * 3, [pytest.approx(0.04)] * 3]
    small, large = recorded["sizes"]
    assert (small["bytes_from"], small["calls"], small["bytes"]) == (64, 6, 600)
    assert small["bytes_per_second"] == pytest.approx(100 / 0.009)
    assert large["bytes_per_second"] == pytest.approx(4096 / 0.008)
    assert [tensor["name"] for tensor in recorded["tensors"]] == ["grad", "b"]
    assert facts["advice"][0]["gain"] == pytest.approx(0.4)
    assert "The others wait for rank 1 (a)" in facts["advice"][0]["text"]


def test_the_bandwidth_of_what_moves_together(tmp_path: Path) -> None:
    """Fused tensors have one time, which counts once."""
    record(tmp_path, 0, *(a_call(0, 0, 10, 20, name=name) for name in range(4)), names=("a", "b", "c", "d"))
    (size,) = left(tmp_path, a_job({"a": [0]}), an_end(1.0))["recorded"]["sizes"]
    assert size["bytes_per_second"] == pytest.approx(4 * 4096 / 0.01)
    assert size["median_move_seconds"] == pytest.approx(0.01)


def test_the_algorithms_of_a_size(tmp_path: Path) -> None:
    one, two = (1 << 40, 2 << 40)
    plans = [a_call(at, at, at + 1, at + 2) for at in range(0, 30, 10)]
    for number, by in enumerate((two, one, two)):
        plans[number] = (plans[number][0] | by, *plans[number][1:])
    rounds = [a_call(at, at, at + 1, at + 2, path=PATHS.index("memory")) for at in range(40, 80, 10)]
    record(tmp_path, 0, *plans, *rounds, algorithms=("shm one-shot", "shm two-shot"))
    (size,) = left(tmp_path, a_job({"a": [0]}), an_end(1.0))["recorded"]["sizes"]
    assert size["algorithms"] == {"direct round": 4, "shm two-shot": 2, "shm one-shot": 1}


def test_sizes_algorithms_links_and_memory_of_the_whole_job(tmp_path: Path) -> None:
    calls = {"calls": 2, "failed": 0, "bytes": 8, "agree_seconds": 0.5, "move_seconds": 0.25}
    link = {"sent_bytes": 100, "received_bytes": 7, "retries": 3, "queued_bytes": 0}

    def rank(number: int, queued: int, kept: int) -> Line:
        return counters(
            number,
            seconds=10.0,
            collectives={"allreduce": {**calls, "sizes": {"1": calls, "1024": {**calls, "move_seconds": 3.0}}}},
            algorithms={"shm one-shot": {"calls": 4, "bytes": 8, "move_seconds": 1.5}},
            links={str(1 - number): {**link, "sent_bytes": 100 + number, "queued_bytes": queued}},
            memory_bytes_of={"slot": 1 << 20, "kept": kept, "empty": 0},
        )

    log = [a_job({"a": [0, 1]}), *(look(at, rank(0, 9 - at, 4096 // at), rank(1, 0, 0)) for at in (1, 2))]
    facts = left(tmp_path, *log, an_end(12.0))
    large, small = facts["sizes"]
    assert (large["bytes_from"], large["calls"], large["move_seconds"]) == (1024, 4, 6.0)
    assert small["bytes_from"] == 0
    assert facts["algorithms"] == [{"algorithm": "shm one-shot", "calls": 8, "bytes": 16, "move_seconds": 3.0}]
    first, second = facts["links"]
    assert (first["rank"], first["peer"], first["sent_bytes"], first["most_queued_bytes"]) == (1, 0, 101, 0)
    assert (second["most_queued_bytes"], second["retries"]) == (8, 3)
    assert facts["ranks"][0]["engine_memory_bytes"] == {"slot": 1 << 20, "kept": 4096, "empty": 0}
    page = page_of(facts)
    for title in ("Links", "Memory", "Sizes and algorithms, in the whole job"):
        assert title in page


def test_a_rank_that_lacks_calls(tmp_path: Path) -> None:
    """The others are found, and nobody is blamed for what is missing, or failed."""
    mine = [a_call(at, at, at + 50, at + 60) for at in (0, 100, 200, 300)]
    theirs = [a_call(at + 30, at + 30, at + 50, at + 60) for at in (0, 200)]
    record(tmp_path, 0, *mine)
    record(tmp_path, 1, *theirs, a_call(330, 330, 350, 360, outcome=3))
    facts = left(tmp_path, a_job({"a": [0, 1]}), an_end(9.0))
    assert facts["recorded"]["steps"] == 0
    assert facts["recorded"]["ranks"][0]["waited_for"] == {"1": pytest.approx(0.06)}


def test_hosts_whose_clocks_differ(tmp_path: Path) -> None:
    """Host b is a day ahead, and gains 1 ms between two comparisons 100 ms apart."""
    day = 86_400_000
    clocks = {"b": [[day * MS, day * MS, 1000], [(day + 101) * MS, (day + 1) * MS, 1000]]}
    record(tmp_path, 0, a_call(10, 10, 50, 60))
    record(tmp_path, 1, a_call(day + 40.4, day + 40.4, day + 50.5, day + 60.6))
    about = a_job({"a": [0], "b": [1]})
    facts = left(tmp_path, about, {"kind": "records", "at": 8.0, "clocks": clocks}, an_end(9.0))
    assert facts["recorded"]["clock_bound_seconds"] == 1e-6
    assert facts["recorded"]["ranks"][0]["waited_for"] == {"1": pytest.approx(0.03, abs=2e-3)}


def test_a_direct_round_does_not_wait(tmp_path: Path) -> None:
    for rank in range(2):
        record(tmp_path, rank, a_call(rank, rank, 0, 5, path=PATHS.index("direct")))
    facts = left(tmp_path, a_job({"a": [0, 1]}), an_end(9.0))
    assert [rank["waited_seconds"] + rank["agreed_seconds"] for rank in facts["recorded"]["ranks"]] == [0, 0]
    assert facts["recorded"]["ranks"][0]["moved_seconds"] == pytest.approx(0.005)


def test_records_of_another_version(tmp_path: Path) -> None:
    record(tmp_path, 0, a_call(0, 0, 1, 2))
    path = tmp_path / "rank.0" / "records"
    path.write_bytes(ENTRY.pack(record_file.MAGIC, record_file.VERSION + 1, *[0] * 8) + path.read_bytes()[80:])
    with pytest.raises(LaunchError, match="same ciranda on every host"):
        left(tmp_path, a_job({"a": [0]}), an_end(1.0))


# -- the page ---------------------------------------------------------------------------------------------------------


def test_nothing_hostile_is_in_the_page(tmp_path: Path) -> None:
    for rank, late in enumerate((0, 40)):
        entries = [a_step(1, 0)]
        for at in (100, 200):
            entries += [a_call(at + late, at + late, at + 42, at + 50), a_step(1 + at // 100, at + 60)]
        record(tmp_path, rank, *entries, names=(HOSTILE[:60],))
    about = a_job({HOSTILE: [0, 1]}, command=[HOSTILE, "\udcff"], settings={"CIRANDA_X": HOSTILE}, version=HOSTILE)
    of_host = {"kind": "host", "at": 0.2, "host": HOSTILE, "node": HOSTILE, "system": HOSTILE, "python": HOSTILE,
               "cores": 2}  # fmt: skip
    stall = {"kind": "stall", "at": 3.0, "rank": 0, "host": HOSTILE, "where": HOSTILE}
    straggler = {"kind": "straggler", "at": 3.0, "rank": 0, "text": HOSTILE}
    failed = {"rank": 0, "host": HOSTILE, "how": HOSTILE}
    ranks = look(1.0, *(counters(rank, host=HOSTILE, warning=HOSTILE, seconds=1.0) for rank in range(2)))
    end = an_end(9.0, exit_code=1, message=HOSTILE, failed=failed)
    facts = left(tmp_path, about, of_host, ranks, stall, straggler, end)
    other = facts | {"job": facts["job"] | {"id": HOSTILE, "command": []}}
    for page in (page_of(facts), page_of(other), comparison_page(comparison_of(facts, other))):
        page.encode("utf-8")
        assert tags_of(page) <= TAGS
        assert "content=\"default-src 'none'; style-src 'unsafe-inline'\"" in page
    assert "Who was waited for, and when" in page_of(facts)
    assert page_of(facts).count(escape(HOSTILE)) > 8
    assert "most for rank" in page_of(facts)


def test_a_page_on_many_ranks_is_small(tmp_path: Path) -> None:
    n_ranks = 300
    looks = [
        look(n + 1.0, *(counters(rank, seconds=n, steps=n, last_step_seconds=n,
                                 held_up_ns={str(n % n_ranks): n * 10**9} if rank == 0 else {})
                        for rank in range(n_ranks)))
        for n in range(150)
    ]  # fmt: skip
    page = page_of(left(tmp_path, a_job({"a": list(range(n_ranks))}), *looks, an_end(200.0)))
    assert "Of 300 ranks, the 64 that others wait for most." in page
    assert len(page) < 2_000_000


def test_two_jobs_are_compared(tmp_path: Path) -> None:
    def job(name: str, **settings: str) -> dict[str, Any]:
        seconds = 10.0 if name == "one" else 5.0
        told = {"seconds": seconds, "steps": 100, "last_step_seconds": seconds, "waited_seconds": 1.0}
        about = a_job({"a": [0, 1]}, settings=settings)
        return left(tmp_path / name, about, look(9.0, counters(0, **told), counters(1, **told)), an_end(9.0))

    found = comparison_of(job("one", CIRANDA_X="1"), job("two", CIRANDA_X="2", CIRANDA_Y="3"))
    figures = {figure["name"]: figure for figure in found["figures"]}
    assert (figures["a step"]["first"], figures["a step"]["second"], figures["a step"]["change"]) == (0.1, 0.05, 0.5)
    assert figures["waiting for others, in a step"]["change"] == 1.0
    assert found["differences"] == [
        {"name": "CIRANDA_X", "first": "1", "second": "2"},
        {"name": "CIRANDA_Y", "first": "", "second": "3"},
    ]
    assert '<td class="number better">0.50x</td>' in comparison_page(found)


def test_the_limit_that_was_measured(tmp_path: Path) -> None:
    """A byte of an allreduce of two ranks takes 1.5 copies and a reduction in memory, or the link and a reduction."""
    record(tmp_path, 0, a_call(0, 0, 1, 2))
    costs = {"copy_fs": 60_000, "reduce_fs": 10_000, "link_fs": 790_000}
    page = page_of(left(tmp_path, a_job({"a": [0]}, costs=costs), look(1.0, counters(0)), an_end(1.0)))
    assert "can reach 10.0 GB/s in shared memory and 1.25 GB/s between hosts" in page
    assert "ciranda tune&#x27; before the job" not in page


def advice_on(*ranks: Line, **facts: Any) -> list[dict[str, Any]]:
    """Advice on a job of 10 s, with these fields of its ranks."""
    end = {"how": "succeeded", "failed": None, "exit_code": 0, "message": None, "hang": None}
    rank = {"host": "a", "seconds": 10.0, "waited_seconds": 0.0, "moved_seconds": 0.0, "cpu_seconds": 1.0,
            "waited_for_seconds": 0.0, "doing": None}  # fmt: skip
    job = {"costs": {}, "hosts": [{"host": "a", "ranks": [*range(len(ranks))]}]}
    nothing: Line = {"events": [], "hangs": [], "recorded": None, "standstill": None, "sizes": [], "collectives": []}
    numbered = [{**rank, "rank": number, **each} for number, each in enumerate(ranks)]
    return advice_of({"end": end, "job": job, "ranks": numbered, **nothing, **facts})


def test_little_advice_is_none() -> None:
    assert advice_on({}, {}) == []


def test_the_command_for_a_job_that_runs() -> None:
    job = {"id": "0123456789abcdef", "costs": {}, "hosts": [{"host": "a", "ranks": [0, 1]}]}
    end = {"how": "running", "failed": None, "exit_code": None, "message": None, "hang": None}
    (advice,) = advice_on({"waited_seconds": 5.0}, {"waited_for_seconds": 5.0}, job=job, end=end)
    assert advice["text"].endswith("While it runs, 'ciranda stacks 01234567 --ranks 1 --samples 40' names the lines.")


def test_a_hang_that_is_over_is_no_reason_to_blame_its_rank() -> None:
    """It and rank 2 were late for 5 s each; for it, the others have waited for 20 s once more."""
    hang = {"rank": 1, "seconds": 20.0, "is_over": True}
    late = {"seconds": 40.0, "waited_for_seconds": 25.0}, {"seconds": 40.0, "waited_for_seconds": 5.0}
    (advice,) = advice_on({"seconds": 40.0, "waited_seconds": 30.0}, *late, hangs=[hang])
    assert advice["gain"] == pytest.approx(10 / 40)
    assert advice["text"].startswith("The ranks wait for each other in turn")


@pytest.mark.parametrize(
    ("n_bytes", "seconds", "costs", "is_told"),
    [
        (16 << 10, 5.0, {}, False),  # latency
        (1 << 20, 5.0, {}, True),
        (1 << 20, 2e-3, {"link_fs": 1_000_000, "reduce_fs": 0}, True),  # at 1 GB/s, two hosts need 1.05 ms
        (1 << 20, 5.0, {"link_fs": 1_000_000, "reduce_fs": 0}, False),  # something else takes the time
    ],
)
def test_fewer_bytes_help_only_against_bandwidth(n_bytes: int, seconds: float, costs: Line, is_told: bool) -> None:
    size = {"calls": 2, "bytes": 2 * n_bytes, "move_seconds": 2 * seconds}
    job = {"costs": costs, "hosts": [{"host": host, "ranks": [rank]} for rank, host in enumerate("ab")]}
    moved = {"moved_seconds": 5.0}
    told = [each for each in advice_on(moved, moved, sizes=[size], job=job) if each["text"].startswith("Data moves")]
    assert [each["gain"] for each in told] == ([0.25] if is_told else [])


def test_a_bar_is_as_long_as_its_value() -> None:
    drawn = bars([("a", [Part("wait", 5.0, "five"), Part("move", 5.0, "")])], units.seconds)
    assert drawn.count('width="385.00"') == 2, "half of what there is for ten seconds"
    assert "<title>five</title>" in drawn
    assert ">10.0 s<" in drawn


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (2e-7, "0.20 us"), (0.0512, "51.2 ms"), (1.5, "1.50 s"), (119, "119 s"), (200, "3 min 20 s"),
     (7300, "2 h 1 min"), (90_000, "1 d 1 h")],
)  # fmt: skip
def test_times(value: float, text: str) -> None:
    assert units.seconds(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0 B"), (999, "999 B"), (1048576, "1.05 MB"), (2e15, "2000 TB")])
def test_bytes(value: float, text: str) -> None:
    assert units.n_bytes(value) == text
