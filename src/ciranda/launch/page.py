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
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress
from operator import add
from typing import Any

from ciranda.launch import in_flight
from ciranda.launch.shared_file import SharedFile

MAGIC = int.from_bytes(b"CiraPage", sys.byteorder)
VERSION = 4
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
    "slot_bytes": (13, 1),
    "kept_bytes": (14, 1),
    "empty_bytes": (15, 1),
    "n_in_flight": (16, 1),
    "shown_used": (17, 1),
    "paths": (24, 8),
    "calls": (32, 2048),
    "algorithms": (2080, 128),
    "sets": (2208, 128),
    "own_waits_ns": (2336, MOST_RANKS),
    "held_up_ns": (2336 + MOST_RANKS, MOST_RANKS),
    "links": (2336 + 2 * MOST_RANKS, 4 * MOST_RANKS),
    "shown": (2336 + 6 * MOST_RANKS, in_flight.WORDS * in_flight.MOST_ENTRIES),
}
#: The first words of the eight for each collective and class of sizes.
CALL_FIELDS = ("direct", "others", "failed", "n_bytes", "agree_ns", "move_ns")
#: The words for each peer.
LINK_FIELDS = ("n_sent", "n_received", "n_retries", "n_queued")
#: The first words of the eight for each process set.
SET_FIELDS = ("id", "n_calls", "n_bytes", "agree_ns", "move_ns")
#: Of the ranks that this one has links with, so many are told apart; the others are one.
MOST_LINKS = 8
_WORDS_OF_CALLS = 8
_N_SIZES = 16
_WORDS_OF_ALGORITHM = 8
_WORDS_OF_NAME = 3
_WORDS_OF_SET = 8
_WORDS_OF_LINK = len(LINK_FIELDS)
_N_HEAD = FIELDS["own_waits_ns"][0]
_N_WORDS = FIELDS["shown"][0] + FIELDS["shown"][1]
_OF_CALLS = ("calls", "failed", "bytes", "agree_seconds", "move_seconds")
_OF_LINK = ("sent_bytes", "received_bytes", "retries", "queued_bytes")
_GENERATION_AT = 8 * FIELDS["generation"][0]
_NAMES = [str(rank) for rank in range(MOST_RANKS)]  # JSON has no numbers as names
_ROWS = [(name, str(4**size)) for name in COLLECTIVES for size in range(_N_SIZES)]  # of `calls`

N_BYTES = 8 * _N_WORDS
_TRIES = 3

#: Reads so many bytes of a page from an offset on.
Read = Callable[[int, int], bytes]


class RankPage(SharedFile):
    """The file in memory for the page of one place's rank: as long as the agent lives, and of a size that is fixed."""

    #: What world() says before a process has joined one.
    NO_WORLD = (0, 0)

    def __init__(self, rank: int) -> None:
        super().__init__(f"ciranda-page-{rank}")
        self.fix_size(N_BYTES)

    def clear(self) -> None:
        """Forget a process that has ended: it is refused until another has joined a world. REQUIRES: nobody writes."""
        os.pwrite(self._fd, bytes(N_BYTES), 0)

    def counters(self) -> dict[str, Any]:
        """As `read_page`."""
        return read_page(self.read)

    def totals(self) -> dict[str, Any]:
        """As `read_page`, without those of each collective: half the work, and half of what to pass on."""
        return read_page(self.read, of_collectives=False)

    def at_the_end(self) -> dict[str, Any]:
        """As `counters`, with ``last_calls``, as `last_calls` has them: what to keep of a rank that has ended."""
        found = self.counters()
        return {**found, "last_calls": self.last_calls()} if found else {}

    def last_calls(self) -> list[dict[str, Any]]:
        """The calls that have ended last (`ciranda.launch.in_flight`); none if the page is refused."""
        head = _words(self.read(8 * _N_HEAD, 0))
        calls = in_flight.last_of(*_shown(self.read, head), COLLECTIVES) if _is_page(head) else []
        return calls if self.world() == (_one(head, "pid"), _one(head, "generation")) else []

    def world(self) -> tuple[int, int]:
        """The process that writes here, and a number that is another for each world that it joins. Costs little."""
        head = self._beginning()
        return (_one(head, "pid"), _one(head, "generation")) if head else self.NO_WORLD

    def size(self) -> int:
        """How many ranks that world has; 0 before a process has joined one. Costs little."""
        head = self._beginning()
        return _one(head, "size") if head else 0

    def _beginning(self) -> Sequence[int]:
        """The first words, up to the size; none before a process has joined a world."""
        head = _words(self.read(8 * (FIELDS["size"][0] + 1), 0))
        generation = _one(head, "generation")
        return head if generation and generation % 2 == 0 else ()


def read_page(read: Read, of_collectives: bool = True) -> dict[str, Any]:
    """What the counters of a page say, in plain values for JSON; nothing if it is refused.

    Args:
        read: the page.
        of_collectives: whether ``collectives``, ``paths`` and ``process_sets`` are wanted as well.

    Returns:
        ``seconds`` is the age of the world, ``last_step_seconds`` its age at the end of the last step, 0 before; and
        ``waited_seconds`` the part of it in which a call waited for other ranks, also one that does so now, as
        ``waiting`` do. ``own_waits_ns`` and ``held_up_ns``, by rank, say for whom: the former what this rank has waited
        itself, the latter the longest wait of any rank in calls that this one coordinated. Of
        ``collectives``, each has ``sizes``, by the least bytes of a class, a power of 4. ``algorithms`` have carried
        out the calls that moved data by a plan. ``links`` are those that have carried most, by rank; ``all_links`` the
        sum of all, and ``memory_bytes_of`` what slots, kept results and ``empty()`` take now. ``process_sets``, by
        their ids, are those beside the world. ``in_flight`` calls have not ended, of which ``calls_in_flight`` are the
        oldest (`ciranda.launch.in_flight`).
    """
    for _ in range(_TRIES):
        head = _words(read(8 * _N_HEAD, 0))
        if not _is_page(head):
            continue
        n_ranks = min(_one(head, "size"), MOST_RANKS)
        waits = [_words(read(8 * n_ranks, 8 * FIELDS[name][0])) for name in ("own_waits_ns", "held_up_ns")]
        links = _words(read(8 * _WORDS_OF_LINK * n_ranks, 8 * FIELDS["links"][0]))
        pending = _pending(read, head)
        if [*_words(read(8, _GENERATION_AT))] == [_one(head, "generation")]:
            found = {**_values(head, *waits), **_links(links), "calls_in_flight": pending}
            return {**found, **_of_some(head)} if of_collectives else found
    return {}


def read_bytes(page: bytes) -> dict[str, Any]:
    """As `read_page`, of a page that has been copied whole."""
    return read_page(lambda n_bytes, at: page[at : at + n_bytes])


def _words(raw: bytes) -> memoryview:
    """Those that are whole. Most of them are not looked at, and take no time."""
    return memoryview(raw)[: len(raw) // 8 * 8].cast("Q")


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
    return {
        "pid": _one(head, "pid"),
        "generation": _one(head, "generation"),
        "rank": _one(head, "rank"),
        "size": _one(head, "size"),
        "seconds": _seconds(now - _one(head, "began_ns")),
        "steps": _one(head, "steps"),
        "last_step_seconds": _seconds(max(0, _one(head, "last_step_ns") - _one(head, "began_ns"))),
        "waiting": _one(head, "n_waiting"),
        "waited_seconds": _seconds(waited),
        "stalls": _one(head, "stalls"),
        "calls": sum(_of_calls(head, "direct")) + sum(_of_calls(head, "others")),
        "bytes": sum(_of_calls(head, "n_bytes")),
        "memory_bytes_of": {name: _one(head, f"{name}_bytes") for name in ("slot", "kept", "empty")},
        "algorithms": dict(_algorithms(head)),
        "in_flight": _one(head, "n_in_flight"),
        "own_waits_ns": _by_rank(own_waits),
        "held_up_ns": _by_rank(held_up),
    }


def _of_calls(head: Sequence[int], name: str) -> Sequence[int]:
    """The same word of the calls of each collective and class of sizes."""
    begin, n_words = FIELDS["calls"]
    return head[begin + CALL_FIELDS.index(name) : begin + n_words : _WORDS_OF_CALLS]


def _of_some(head: Sequence[int]) -> dict[str, Any]:
    """What some of the calls have done, by what they are."""
    return {"paths": _paths(head), "collectives": _collectives(head), "process_sets": dict(_process_sets(head))}


def _paths(head: Sequence[int]) -> dict[str, int]:
    first = FIELDS["paths"][0]
    paths = dict(zip(PATHS, head[first : first + len(PATHS)], strict=True))
    paths["direct"] += sum(_of_calls(head, "direct"))
    return {name: n_calls for name, n_calls in paths.items() if n_calls}


def _collectives(head: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Those that were called, with their sizes, by the least bytes of a class; 1 is of 0, too."""
    n_calls = [*map(add, _of_calls(head, "direct"), _of_calls(head, "others"))]
    sizes: dict[str, dict[str, dict[str, Any]]] = {}
    for row in compress(range(len(_ROWS)), n_calls):  # few of them were
        name, least = _ROWS[row]
        first = FIELDS["calls"][0] + row * _WORDS_OF_CALLS
        n_failed, n_bytes, agree_ns, move_ns = head[first + 2 : first + len(CALL_FIELDS)]
        values = (n_calls[row], n_failed, n_bytes, _seconds(agree_ns), _seconds(move_ns))
        sizes.setdefault(name, {})[least] = dict(zip(_OF_CALLS, values, strict=True))
    return {name: _with_sums(of) for name, of in sizes.items()}


def _with_sums(sizes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    columns = zip(*(of_size.values() for of_size in sizes.values()), strict=True)
    return {**dict(zip(_OF_CALLS, map(sum, columns), strict=True)), "sizes": sizes}


def _algorithms(head: Sequence[int]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Those that have carried out calls."""
    begin, n_words = FIELDS["algorithms"]
    for first in range(begin, begin + n_words, _WORDS_OF_ALGORITHM):
        name = head[first : first + _WORDS_OF_NAME]
        n_calls, n_bytes, move_ns = head[first + _WORDS_OF_NAME : first + _WORDS_OF_NAME + 3]
        if n_calls:
            raw = struct.pack(f"={_WORDS_OF_NAME}Q", *name)
            values = {"calls": n_calls, "bytes": n_bytes, "move_seconds": _seconds(move_ns)}
            yield raw.rstrip(b"\0").decode("ascii", "replace"), values


def _process_sets(head: Sequence[int]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Those that were called; JSON has no numbers as names."""
    begin, n_words = FIELDS["sets"]
    for first in range(begin, begin + n_words, _WORDS_OF_SET):
        number, n_calls, n_bytes, agree_ns, move_ns = head[first : first + len(SET_FIELDS)]
        if number and n_calls:
            values = {"calls": n_calls, "bytes": n_bytes, "agree_seconds": _seconds(agree_ns)}
            yield str(number), {**values, "move_seconds": _seconds(move_ns)}


def _pending(read: Read, head: Sequence[int]) -> list[dict[str, Any]]:
    if not _one(head, "n_in_flight"):
        return []
    return in_flight.calls_of(*_shown(read, head), COLLECTIVES)


def _shown(read: Read, head: Sequence[int]) -> tuple[bytes, bytes]:
    """Two copies of the entries of calls."""
    n_bytes = 8 * in_flight.WORDS * min(_one(head, "shown_used"), in_flight.MOST_ENTRIES)
    first, again = (bytes(read(n_bytes, 8 * FIELDS["shown"][0])) for _ in range(2))
    return first, again


def _links(words: Sequence[int]) -> dict[str, Any]:
    """Those that have carried something, the busiest by rank, and the sum."""
    columns = [words[at::_WORDS_OF_LINK] for at in range(_WORDS_OF_LINK)]
    all_links = dict(zip(_OF_LINK, map(sum, columns), strict=True))
    carried = [*map(add, *columns[:2])]
    busiest = sorted(range(len(carried)), key=carried.__getitem__)[-MOST_LINKS:] if any(all_links.values()) else []
    rows = {rank: words[rank * _WORDS_OF_LINK : (rank + 1) * _WORDS_OF_LINK] for rank in sorted(busiest)}
    links = {_NAMES[rank]: dict(zip(_OF_LINK, row, strict=True)) for rank, row in rows.items() if any(row)}
    return {"links": links, "all_links": all_links}


def _by_rank(waits: Sequence[int]) -> dict[str, int]:
    return {name: ns for name, ns in zip(_NAMES, waits, strict=False) if ns}


def _seconds(ns: int) -> float:
    return ns / 1e9
