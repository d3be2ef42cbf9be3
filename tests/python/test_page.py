"""The page of counters as readers without the engine know it: its layout, and what they refuse."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from ciranda import _core, metrics
from ciranda._basics import world
from ciranda.errors import NotInitializedError
from ciranda.launch import page
from ciranda.launch.page import RankPage, read_bytes, read_page


def test_the_layout_is_the_engines() -> None:
    layout = _core.PAGE_LAYOUT
    assert layout["fields"] == page.FIELDS
    assert [*page.CALL_FIELDS] == layout["call_fields"]
    assert [*page.LINK_FIELDS] == layout["link_fields"]
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
    assert counters.keys() - totals.keys() == {"collectives", "paths"}
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
