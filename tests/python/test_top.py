"""What `ciranda top` makes of two looks at the counters."""

from __future__ import annotations

import json
import re
from io import StringIO
from typing import Any

from rich.console import Console

from ciranda.launch import top
from ciranda.launch.rates import rows


def rank(number: int, seconds: float, **values: Any) -> dict[str, Any]:
    counters = {"pid": 100 + number, "seconds": seconds, "steps": 0, "waited_seconds": 0.0, "calls": 0, "bytes": 0}
    told = {"rank": number, "host": "h", "runs": True, "memory_bytes": 1 << 20, "cpu_seconds": 0.0, "warning": ""}
    return {**counters, **told, **values}


def test_rates_are_those_between_the_looks() -> None:
    before = {0: rank(0, 10.0, steps=100, calls=1000, bytes=10**9, waited_seconds=5.0)}
    after = {0: rank(0, 12.0, steps=110, calls=3000, bytes=5 * 10**9, waited_seconds=6.0)}
    (row,) = rows(before, after)
    assert (row.steps_per_second, row.calls_per_second, row.bytes_per_second) == (5.0, 1000.0, 2e9)
    assert row.waited == 0.5
    assert row.state == "runs"


def test_whom_the_others_waited_for() -> None:
    before = {n: rank(n, 10.0) for n in range(3)}
    after = {
        0: rank(0, 11.0, held_up_ns={"2": 250_000_000}, own_waits_ns={"2": 250_000_000, "1": 100_000_000}),
        1: rank(1, 11.0, own_waits_ns={"2": 500_000_000}),
        2: rank(2, 11.0),
    }
    found = rows(before, after)
    assert [round(row.waited_for, 6) for row in found] == [0.0, 0.1, 0.75], "the longest of waits side by side"


def test_the_algorithm_and_the_busiest_link() -> None:
    def using(times: int) -> dict[str, Any]:
        algorithms = {"direct two-shot": (5, 0.5), "direct star": (1, 2.0 if times == 1 else 2.1)}
        return {
            "algorithms": {
                name: {"calls": calls * times, "bytes": 0, "move_seconds": seconds * (times if calls > 1 else 1)}
                for name, (calls, seconds) in algorithms.items()
            },
            "links": {
                "1": {"sent_bytes": 10**9 * times, "received_bytes": 10**9 * times, "retries": 0, "queued_bytes": 0},
                "2": {"sent_bytes": 10**6 * times, "received_bytes": 0, "retries": 9, "queued_bytes": 0},
                **(
                    {"3": {"sent_bytes": 10**12, "received_bytes": 0, "retries": 0, "queued_bytes": 0}}
                    if times > 1
                    else {}
                ),
            },
            "all_links": {"retries": 9 * times},
            "memory_bytes_of": {"slot": 32 << 20, "kept": 1 << 20, "empty": 0},
        }

    found = rows({0: rank(0, 10.0, **using(1))}, {0: rank(0, 12.0, **using(2))})
    assert found[0].algorithm == "direct two-shot"
    assert (found[0].link, found[0].link_bytes_per_second) == (1, 1e9), "what rank 3 has carried meanwhile is unknown"
    assert re.search(r"33 MiB +direct two-shot +rank 1, 1.00 GB/s, 4 retries/s", top.to_text(found))
    output = StringIO()
    Console(width=120, file=output).print(top.screen_of(found, "a job", top.View()))
    shown = " ".join(output.getvalue().split())
    assert "rank 0: engine memory 33 MiB; algorithm direct two-shot; busiest link rank 1, 1.00 GB/s" in shown
    assert rows({}, {0: rank(0, 1.0)})[0].link == -1


def test_calls_in_flight_for_long() -> None:
    def call(seconds: float) -> dict[str, Any]:
        return {"name": "grad", "collective": "allreduce", "process_set": 3, "lane": 0, "bytes": 8, "agreed": False,
                "seconds": seconds}  # fmt: skip

    after = {n: rank(n, 11.0, in_flight=2, calls_in_flight=[call(0.5 + 4 * n), call(0.1)]) for n in range(5)}
    found = rows({n: rank(n, 10.0) for n in range(5)}, after)
    assert "allreduce 'grad' of process set 3, for 4.5 s, and 1 more" in top.to_text(found[:2])
    assert "for 0.5 s" not in top.to_text(found), "as each call is for a moment"
    assert json.loads(top.to_json(found))[0]["calls_in_flight"][1]["seconds"] == 0.1
    shown = [text for text, _ in top.screen_of(found, "a job", top.View()).lines]
    assert [text[:7] for text in shown if "call in flight" in text] == ["rank 2:", "rank 3:", "rank 4:"]
    few = " ".join(text for text, _ in top.screen_of(found[:2], "a job", top.View()).lines)
    assert "rank 1: call in flight allreduce 'grad' of process set 3, for 4.5 s" in few


def test_a_rank_that_others_still_wait_for() -> None:
    def call(name: str, seconds: float, **other: Any) -> dict[str, Any]:
        return {"name": name, "collective": "allreduce", "process_set": 0, "lane": 0, "bytes": 8, "agreed": False,
                "seconds": seconds, **other}  # fmt: skip

    def waited_for(*calls: list[dict[str, Any]], **values: Any) -> list[float]:
        after = {n: rank(n, 20.0, in_flight=len(of), calls_in_flight=of, **values) for n, of in enumerate(calls)}
        return [row.waited_for for row in rows({n: rank(n, 18.0) for n in after}, after)]

    assert waited_for([call("grad", 9.0)], [], [call("grad", 5.0)]) == [0.0, 1.0, 0.0]
    assert waited_for([call("a", 9.0)], [call("b", 1.5)]) == [0.75, 1.0], "both, for different calls"
    assert waited_for([call("grad", 0.5)], []) == [0.0, 0.0], "not long yet"
    assert waited_for([call("grad", 9.0, process_set=3)], []) == [0.0, 0.0], "it may be no member"
    assert waited_for([call("grad", 9.0, agreed=True)], []) == [0.0, 0.0], "all have come"
    assert waited_for([call("grad", 9.0)], [call("x", 9.0, collective="join")]) == [1.0, 0.0], "it takes no part"
    assert waited_for([call("grad", 9.0)], [], runs=False) == [0.0, 0.0], "what a killed rank was in waits no more"
    torn = {0: rank(0, 20.0, in_flight=1, calls_in_flight=[call("grad", 9.0)]), 1: rank(1, 20.0, in_flight=1,
            calls_in_flight=[])}  # fmt: skip
    assert [row.waited_for for row in rows({}, torn)] == [0.0, 0.0], "what rank 1 is in is not known"


def test_what_the_slow_rank_does() -> None:
    signs = dict.fromkeys(("stopped_looks", "slept_looks", "thread_looks", "input_looks", "core_wait_seconds",
                           "disk_wait_seconds", "yielded", "preempted", "throttled_seconds", "disk_pressure_seconds",
                           "memory_pressure_seconds"), 0)  # fmt: skip
    before = {n: rank(n, 10.0, **signs, looks=1) for n in range(2)}
    after = {
        0: rank(0, 11.0, **signs, looks=2, waited_seconds=0.9, held_up_ns={"1": 900_000_000}),
        1: rank(1, 11.0, **{**signs, "input_looks": 1}, looks=2),
    }
    found = rows(before, after)
    assert [line.split()[2] for line in top.to_text(found).splitlines()[1:]] == ["waits", "input"]
    output = StringIO()
    Console(width=80, file=output).print(top.screen_of(found, "a job", top.View()))
    shown = " ".join(output.getvalue().split())
    assert "rank 1, for which others wait: waited for input 100% of the time (kept 0% of a core busy)" in shown
    looks = iter((before, after))
    assert "rank 1, for which others wait: waited for input" in top.once(lambda: next(looks), 0.0, False, top.View())


def test_another_world_begins_anew() -> None:
    before = {0: rank(0, 100.0, steps=1000)}
    after = {0: rank(0, 2.0, steps=10)}
    assert rows(before, after)[0].steps_per_second == 5.0
    older = {0: rank(0, 200.0, steps=10) | {"generation": 4}}  # than the world before it
    assert rows(before, older)[0].steps_per_second == 0.05


def test_waits_of_another_world_do_not_count() -> None:
    """In an elastic job the same process goes on in the next world, where its counters begin at 0."""
    before = {0: rank(0, 100.0, held_up_ns={"1": 50_000_000_000}), 1: rank(1, 100.0)}
    after = {0: rank(0, 1.0, held_up_ns={"1": 500_000_000}), 1: rank(1, 1.0)}
    assert [row.waited_for for row in rows(before, after)] == [0.0, 0.5]


def test_ranks_that_start_and_that_have_ended() -> None:
    bare = {"rank": 0, "host": "h", "runs": True, "memory_bytes": 0, "cpu_seconds": 0.0, "warning": ""}
    dead = rank(1, 10.0, runs=False, memory_bytes=0)
    found = rows({}, {0: bare, 1: dead})
    assert [row.state for row in found] == ["starts", "has ended"]
    assert found[0].calls_per_second == 0.0


def test_the_same_as_text_and_as_json() -> None:
    found = rows({}, {0: rank(0, 1.0, warning="rank 1 is late"), 1: rank(1, 1.0)})
    head, first, second = top.to_text(found).splitlines()
    assert head.split()[:2] == ["rank", "host"]
    assert first.endswith("rank 1 is late")
    assert second.split()[0] == "1"
    assert [row["rank"] for row in json.loads(top.to_json(found))] == [0, 1]


def test_the_live_table_fits_into_80_characters() -> None:
    warning = "'grad' has waited 10.0 s for rank 1 (host hostB), which last submitted 'loss' 12.1 s ago"
    before = {n: rank(n, 10.0, host="node-12") for n in range(8)}
    after = {n: rank(n, 11.0, host="node-12", memory_bytes=34 << 30, warning=warning) for n in before}
    output = StringIO()
    console = Console(width=80, file=output)
    console.print(top.screen_of(rows(before, after), "ciranda job 3f2a", top.View(sort="memory")))
    shown = output.getvalue()
    for name in ("rank", "host", "state", "steps/s", "calls/s", "GB/s", "waited", "waited for", "cpu", "memory"):
        assert re.search(rf"\b{name}\b", shown), name
    assert "node-12" in shown
    assert "34,816 MiB" in shown
    assert "sort, now by memory" in shown
    assert f"rank 4: {warning}" in shown.replace("\n", " ")
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.count("'grad'") == 5, "more would leave no room for ranks"


def test_many_ranks_are_looked_at_less_often() -> None:
    assert [top.seconds_for(n) for n in (1, 14, 56)] == [1, 1, 4]


def test_chosen_ranks_by_a_column() -> None:
    cpu = {0: 1.0, 1: 3.0, 2: 1.0, 3: 2.0}
    before = {n: rank(n, 10.0) for n in cpu}
    found = rows(before, {n: rank(n, 11.0, cpu_seconds=seconds) for n, seconds in cpu.items()})
    assert [row.rank for row in top.View().of(found)] == [0, 1, 2, 3]
    assert [row.rank for row in top.View(sort="cpu").of(found)] == [1, 3, 0, 2]
    assert [row.rank for row in top.View(frozenset({0, 3, 9}), "cpu").of(found)] == [3, 0]


def test_all_columns_come_in_turn() -> None:
    view, seen = top.View(frozenset({1})), []
    for _ in top.SORTS:
        seen.append(view.sort)
        view = view.next()
    assert seen == [*top.SORTS]
    assert view == top.View(frozenset({1}))
    assert set(top.SORTS) <= set(top.to_text([]).split("  ")) | {"GB/s"}, "they are columns"
