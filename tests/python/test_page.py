"""The page of counters as readers without the engine know it: its layout, and what they refuse."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from ciranda import _core, metrics
from ciranda._basics import world
from ciranda.errors import NotInitializedError
from ciranda.launch import in_flight, page
from ciranda.launch.page import RankPage, read_bytes, read_page


def test_the_layout_is_the_engines() -> None:
    layout = _core.PAGE_LAYOUT
    assert layout["fields"] == page.FIELDS
    assert [*page.CALL_FIELDS] == layout["call_fields"]
    assert [*page.LINK_FIELDS] == layout["link_fields"]
    assert [*page.SET_FIELDS] == layout["set_fields"]
    assert [*in_flight.FIELDS] == layout["shown_fields"]
    assert (layout["magic"], layout["version"], layout["n_bytes"]) == (page.MAGIC, page.VERSION, page.N_BYTES)
    assert {name: number for number, name in enumerate(page.COLLECTIVES)} == _core.COLLECTIVES
    assert [name if name != "along" else "" for name in page.PATHS] == layout["paths"]


def a_page(**values: int) -> bytearray:
    raw = bytearray(page.N_BYTES)
    for name, value in {"magic": page.MAGIC, "version": page.VERSION, "generation": 2, "size": 2, **values}.items():
        put(raw, name, 0, value)
    return raw


def put(raw: bytearray, name: str, at: int, *words: int) -> None:
    """Write words of a field, from one of its words on."""
    struct.pack_into(f"={len(words)}Q", raw, 8 * (page.FIELDS[name][0] + at), *words)


def test_what_is_no_page_is_refused() -> None:
    assert read_bytes(bytes(a_page(steps=7)))["steps"] == 7
    assert read_bytes(bytes(a_page(magic=1))) == {}
    assert read_bytes(bytes(a_page(version=page.VERSION + 1))) == {}
    assert read_bytes(bytes(a_page(generation=3))) == {}, "a world begins"
    assert read_bytes(bytes(a_page())[:100]) == {}
    assert read_bytes(b"") == {}
    assert read_bytes(os.urandom(page.N_BYTES)) == {}


def test_a_page_that_changes_its_world_meanwhile_is_torn() -> None:
    generations = iter(range(2, 100, 2))

    def read(n_bytes: int, at: int) -> bytes:
        return bytes(a_page(generation=next(generations)))[at : at + n_bytes]

    assert read_page(read) == {}


def test_a_call_that_waits_counts_until_now() -> None:
    counters = read_bytes(bytes(a_page(n_waiting=1, waiting_ns=1, waited_ns=5)))
    assert counters["waiting"] == 1
    assert counters["waited_seconds"] > 1.0, "since the machine has started"


def test_calls_by_size_and_algorithm() -> None:
    raw = a_page()
    broadcast = page.COLLECTIVES.index("broadcast")
    put(raw, "calls", 8 * (16 * broadcast + 1), 61, 2, 1, 400, 1_000_000_000, 2_000_000_000)
    put(raw, "calls", 8 * (16 * broadcast + 15), 0, 1, 0, 1 << 31, 0, 500_000_000)
    put(raw, "algorithms", 8, *struct.unpack("=3Q", b"direct by-hosts".ljust(24, b"\0")), 3, 1 << 31, 2_500_000_000)
    counters = read_bytes(bytes(raw))
    found = counters["collectives"]
    assert [*found] == ["broadcast"]
    assert {**found["broadcast"], "sizes": None} == {
        "calls": 64, "failed": 1, "bytes": 400 + (1 << 31), "agree_seconds": 1.0, "move_seconds": 2.5, "sizes": None,
    }  # fmt: skip
    assert found["broadcast"]["sizes"]["4"]["calls"] == 63
    assert found["broadcast"]["sizes"][str(1 << 30)]["bytes"] == 1 << 31
    assert counters["algorithms"] == {"direct by-hosts": {"calls": 3, "bytes": 1 << 31, "move_seconds": 2.5}}
    assert counters["paths"] == {"direct": 61}
    assert (counters["calls"], counters["bytes"]) == (64, 400 + (1 << 31))
    totals = read_page(lambda n_bytes, at: bytes(raw[at : at + n_bytes]), of_collectives=False)
    assert counters.keys() - totals.keys() == {"collectives", "paths", "process_sets"}
    assert (totals["calls"], totals["algorithms"]) == (64, counters["algorithms"])


def test_links_and_memory() -> None:
    raw = a_page(size=100, slot_bytes=1, kept_bytes=2, empty_bytes=3)
    for rank in range(40):
        put(raw, "links", 4 * rank, 1000 * rank, 10, rank % 2, 5)
    counters = read_bytes(bytes(raw))
    assert counters["memory_bytes_of"] == {"slot": 1, "kept": 2, "empty": 3}
    assert [*counters["links"]] == [str(rank) for rank in range(40 - page.MOST_LINKS, 40)], "the busiest"
    assert counters["links"]["39"] == {"sent_bytes": 39000, "received_bytes": 10, "retries": 1, "queued_bytes": 5}
    assert counters["all_links"] == {"sent_bytes": 780_000, "received_bytes": 400, "retries": 20, "queued_bytes": 200}


def a_call(
    raw: bytearray, entry: int, sequence: int, since_ns: int, name: str, flags: int = 0, ended_ns: int = 0
) -> None:
    """Put a call on the page."""
    kind = page.COLLECTIVES.index("broadcast") | flags | len(name) << 32
    put(raw, "shown", in_flight.WORDS * entry, sequence, since_ns, ended_ns, kind, 3 | 1 << 32, 4000)
    put(raw, "shown", in_flight.WORDS * entry + 6, *struct.unpack("=10Q", name.encode()[:80].ljust(80, b"\0")))


def test_calls_in_flight() -> None:
    raw = a_page(n_in_flight=5, shown_used=4)
    a_call(raw, 0, 2, 2_000_000_000, "grad")
    a_call(raw, 1, 3, 1_000_000_000, "is being written")
    a_call(raw, 2, 8, 1_000_000_000, "x" * 100, in_flight.AGREED)
    a_call(raw, 3, 4, 1, "has ended", in_flight.AGREED, ended_ns=2)
    counters = read_bytes(bytes(raw))
    assert counters["in_flight"] == 5
    assert [call["name"] for call in counters["calls_in_flight"]] == ["x" * 80 + "...", "grad"], "the oldest first"
    assert [call["agreed"] for call in counters["calls_in_flight"]] == [True, False]
    grad = counters["calls_in_flight"][1]
    assert grad.pop("seconds") > 1.0, "since the machine has started"
    assert grad == {
        "name": "grad", "collective": "broadcast", "process_set": 3, "lane": 1, "bytes": 4000, "agreed": False,
    }  # fmt: skip
    oldest = in_flight.oldest(counters["calls_in_flight"], counters["in_flight"])
    assert oldest.startswith(f"broadcast '{'x' * 80}...' of process set 3, for ")
    assert oldest.endswith(" s, and 4 more")


def test_a_call_that_changes_while_it_is_read_is_left_out() -> None:
    versions = []
    for sequence in (2, 4):
        raw = a_page(n_in_flight=2, shown_used=2)
        a_call(raw, 0, sequence, 1_000_000_000, f"number {sequence}")
        a_call(raw, 1, 6, 1_000_000_000, "stays")
        versions.append(bytes(raw))
    reads = iter([0, 1])

    def read(n_bytes: int, at: int) -> bytes:
        version = versions[next(reads)] if at == 8 * page.FIELDS["shown"][0] else versions[0]
        return version[at : at + n_bytes]

    assert [call["name"] for call in read_page(read)["calls_in_flight"]] == ["stays"]


def test_the_last_calls_of_a_rank_that_is_gone() -> None:
    own = RankPage(3)
    assert own.last_calls() == []
    raw = a_page(rank=3, shown_used=5)
    a_call(raw, 0, 2, 1_000_000_000, "first", in_flight.AGREED, ended_ns=3_500_000_000)
    a_call(raw, 1, 2, 2_000_000_000, "late", 4 << 8, ended_ns=4_000_000_000)
    a_call(raw, 2, 2, 3_000_000_000, "in flight")
    a_call(raw, 3, 3, 1, "torn: it was killed while it wrote", ended_ns=5_000_000_000)
    os.pwrite(own._fd, raw, 0)
    late, first = own.last_calls()
    assert (late["name"], late["failed"], late["seconds"]) == ("late", "timeout", 2.0)
    assert (first["name"], first["failed"], first["seconds"]) == ("first", "", 2.5)
    assert first["ago_seconds"] - late["ago_seconds"] == pytest.approx(0.5, abs=0.1)
    assert own.at_the_end()["last_calls"][1]["name"] == "first"
    assert in_flight.lines([], 0, [{**late, "ago_seconds": 1.0}]) == (
        "Calls before, the last one first; of direct rounds, some:\n"
        "  broadcast 'late' of process set 3, 1.0 s ago; it took 2 s, and failed: timeout\n\n"
    )
    os.pwrite(own._fd, a_page(rank=3, shown_used=5, generation=3)[: 8 * page.FIELDS["paths"][0]], 0)
    assert own.last_calls() == [], "a world begins"
    own.close()


def test_process_sets() -> None:
    raw = a_page()
    put(raw, "sets", 8, 7, 3, 400, 1_000_000_000, 500_000_000)
    put(raw, "sets", 16, 9)
    expected = {"calls": 3, "bytes": 400, "agree_seconds": 1.0, "move_seconds": 0.5}
    assert read_bytes(bytes(raw))["process_sets"] == {"7": expected}, "9 has made no calls"


def test_more_ranks_than_it_has_room_for() -> None:
    assert read_bytes(bytes(a_page(size=1 << 40)))["size"] == 1 << 40


def test_nobody_can_change_the_size_of_a_rank_s_file() -> None:
    own = RankPage(3)
    assert own.counters() == {}
    with Path(own.path).open("r+b") as file:
        for n_bytes in (0, page.N_BYTES - 1, page.N_BYTES + 1):
            with pytest.raises(PermissionError):
                os.ftruncate(file.fileno(), n_bytes)
        file.write(a_page(rank=3))
        file.flush()
    assert own.counters()["rank"] == 3
    own.close()


def test_a_snapshot_needs_a_world() -> None:
    assert world.engine is None
    with pytest.raises(NotInitializedError):
        metrics.snapshot()
