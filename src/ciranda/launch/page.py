"""A rank's page of counters as others read it: where the fields lie, and what they say. Standard library only.

The rank writes to it without a lock and is not asked; so it can also be read when the rank is stuck, stopped or dead.
The truth about the layout is ``cpp/observe/counter_page.hpp``. A page is refused if it is of another version, or torn:
read while a world began.
"""

from __future__ import annotations

import os
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ciranda.launch.shared_file import SharedFile

MAGIC = int.from_bytes(b"CiraPage", sys.byteorder)
VERSION = 1
MOST_RANKS = 4096
#: By their numbers, and so are the paths. The former as in `ciranda._core.COLLECTIVES`.
COLLECTIVES = (
    "allreduce", "allgather", "broadcast", "barrier", "reducescatter", "alltoall", "reduce", "gather", "scatter",
    "send/recv", "join", "add_process_set", "remove_process_set", "add_lane", "scan",
)  # fmt: skip
PATHS = ("none", "direct", "repeated", "memory", "messages", "along", "plan")

#: Name: offset and length, in words of 8 bytes.
FIELDS = {
    "magic": (0, 1),
    "version": (1, 1),
    "generation": (2, 1),
    "pid": (3, 1),
    "rank": (4, 1),
    "size": (5, 1),
    "began_ns": (6, 1),
    "steps": (7, 1),
    "last_step_ns": (8, 1),
    "n_waiting": (9, 1),
    "waiting_ns": (10, 1),
    "waited_ns": (11, 1),
    "stalls": (12, 1),
    "paths": (16, 8),
    "collectives": (24, 128),
    "own_waits_ns": (152, MOST_RANKS),
    "held_up_ns": (152 + MOST_RANKS, MOST_RANKS),
}
#: The first words of each collective's eight.
COLLECTIVE_FIELDS = ("direct", "others", "failed", "n_bytes", "agree_ns", "move_ns")
_WORDS_OF_COLLECTIVE = 8
_N_HEAD = FIELDS["own_waits_ns"][0]
_N_WORDS = _N_HEAD + 2 * MOST_RANKS
_GENERATION_AT = 8 * FIELDS["generation"][0]

N_BYTES = 8 * _N_WORDS
_TRIES = 3

#: Reads so many bytes of a page from an offset on.
Read = Callable[[int, int], bytes]


class RankPage(SharedFile):
    """The file in memory for the page of one place's rank: as long as the agent lives, and of a size that is fixed."""

    def __init__(self, rank: int) -> None:
        super().__init__(f"ciranda-page-{rank}")
        self.fix_size(N_BYTES)

    def clear(self) -> None:
        """Forget a process that has ended: it is refused until another has joined a world. REQUIRES: nobody writes."""
        os.pwrite(self._fd, bytes(N_BYTES), 0)

    def counters(self) -> dict[str, Any]:
        """As `read_page`."""
        return read_page(self.read)


def read_page(read: Read) -> dict[str, Any]:
    """What the counters of a page say, in plain values for JSON; nothing if it is refused.

    Returns:
        ``seconds`` is the age of the world, ``last_step_seconds`` its age at the end of the last step, 0 before; and
        ``waited_seconds`` the part of it in which a call waited for other ranks, also one that does so now, as
        ``waiting`` do. ``own_waits_seconds`` and ``held_up_seconds``, by rank, say for whom: the former what this rank
        has waited itself, the latter the longest wait of any rank in calls that this one coordinated.
    """
    for _ in range(_TRIES):
        raw = read(8 * _N_HEAD, 0)
        head = _words(raw)
        if not _is_page(head):
            continue
        n_ranks = min(_one(head, "size"), MOST_RANKS)
        waits = [_words(read(8 * n_ranks, 8 * FIELDS[name][0])) for name in ("own_waits_ns", "held_up_ns")]
        if _words(read(8, _GENERATION_AT)) == (_one(head, "generation"),):
            return _values(head, *waits)
    return {}


def read_bytes(page: bytes) -> dict[str, Any]:
    """As `read_page`, of a page that has been copied whole."""
    return read_page(lambda n_bytes, at: page[at : at + n_bytes])


def use_of(pid: int) -> dict[str, float]:
    """The memory that a process uses, and the seconds for which it has kept a core busy; zeros if there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return {"memory_bytes": 0, "cpu_seconds": 0.0}
    ticks = int(fields[11]) + int(fields[12])
    return {
        "memory_bytes": int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
        "cpu_seconds": ticks / os.sysconf("SC_CLK_TCK"),
    }


def _words(raw: bytes) -> tuple[int, ...]:
    return struct.unpack(f"={len(raw) // 8}Q", raw[: len(raw) // 8 * 8])


def _one(head: Sequence[int], name: str) -> int:
    return head[FIELDS[name][0]]


def _is_page(head: Sequence[int]) -> bool:
    if len(head) != _N_HEAD or _one(head, "magic") != MAGIC or _one(head, "version") != VERSION:
        return False
    return _one(head, "generation") % 2 == 0


def _values(head: Sequence[int], own_waits: Sequence[int], held_up: Sequence[int]) -> dict[str, Any]:
    now = time.monotonic_ns()
    waiting_since = _one(head, "waiting_ns")
    waited = _one(head, "waited_ns") + (max(0, now - waiting_since) if waiting_since else 0)
    collectives = {name: values for name, values in _collectives(head) if values["calls"]}
    first = FIELDS["paths"][0]
    paths = dict(zip(PATHS, head[first : first + len(PATHS)], strict=True))
    paths["direct"] += sum(head[_first_of(number)] for number in range(len(COLLECTIVES)))
    return {
        "pid": _one(head, "pid"),
        "rank": _one(head, "rank"),
        "size": _one(head, "size"),
        "seconds": _seconds(now - _one(head, "began_ns")),
        "steps": _one(head, "steps"),
        "last_step_seconds": _seconds(max(0, _one(head, "last_step_ns") - _one(head, "began_ns"))),
        "waiting": _one(head, "n_waiting"),
        "waited_seconds": _seconds(waited),
        "stalls": _one(head, "stalls"),
        "paths": {name: n_calls for name, n_calls in paths.items() if n_calls},
        "collectives": collectives,
        "own_waits_seconds": _by_rank(own_waits),
        "held_up_seconds": _by_rank(held_up),
    }


def _first_of(number: int) -> int:
    return FIELDS["collectives"][0] + number * _WORDS_OF_COLLECTIVE


def _collectives(head: Sequence[int]) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for number, name in enumerate(COLLECTIVES):
        first = _first_of(number)
        row = dict(zip(COLLECTIVE_FIELDS, head[first : first + len(COLLECTIVE_FIELDS)], strict=True))
        values = {
            "calls": row["direct"] + row["others"],
            "failed": row["failed"],
            "bytes": row["n_bytes"],
            "agree_seconds": _seconds(row["agree_ns"]),
            "move_seconds": _seconds(row["move_ns"]),
        }
        found.append((name, values))
    return found


def _by_rank(waits: Sequence[int]) -> Mapping[str, float]:
    return {str(rank): _seconds(ns) for rank, ns in enumerate(waits) if ns}


def _seconds(ns: int) -> float:
    return round(ns / 1e9, 9)
