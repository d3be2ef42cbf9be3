"""The calls of a rank that have not ended, as its page of counters shows them, and the last ones that have; in words.

Standard library only. The rank is not asked, so they are also known of one that is stuck, stopped or dead. An entry
that the rank was writing when it was read is left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

#: The first words of an entry; the name follows.
FIELDS = ("sequence", "since_ns", "ended_ns", "kind", "place", "n_bytes")
WORDS = 16
MOST_ENTRIES = 256
#: So many are told: the oldest in flight, the last that have ended.
MOST_CALLS = 16
LONG_SECONDS = 1.0  # a call that has been in flight for as long is worth a line
#: By number: how a call ended, and the flag of one on which the ranks have agreed.
OUTCOMES = ("", "invalid", "mismatch", "ranks lost", "timeout", "aborted", "internal")
AGREED = 1 << 24
_N_NAME_BYTES = 8 * (WORDS - len(FIELDS))

#: One call: ``name``, ``collective``, ``process_set``, ``lane``, ``bytes``. Of one in flight, for how many ``seconds``
#: it has been so, and whether the ranks have ``agreed`` on it: its data moves, or waits for other calls. Of one that
#: has ended, how many ``seconds`` it took, how many ago it ended (``ago_seconds``); ``failed`` is empty, or says how.
Call = Mapping[str, Any]


class _Entry(NamedTuple):
    since_ns: int
    ended_ns: int
    kind: int
    call: dict[str, Any]


def calls_of(first: bytes, again: bytes, collectives: Sequence[str]) -> list[dict[str, Any]]:
    """The calls in flight, the oldest first, from two copies of the same entries, one made after the other."""
    now = time.monotonic_ns()
    found = [
        {**each.call, "seconds": _seconds(now - each.since_ns), "agreed": bool(each.kind & AGREED)}
        for each in _entries(first, again, collectives)
        if each.ended_ns == 0
    ]
    return sorted(found, key=lambda call: -call["seconds"])[:MOST_CALLS]


def last_of(first: bytes, again: bytes, collectives: Sequence[str]) -> list[dict[str, Any]]:
    """The calls that have ended, the last one first, from two such copies."""
    now = time.monotonic_ns()
    found = [
        {
            **each.call,
            "seconds": _seconds(each.ended_ns - each.since_ns),
            "ago_seconds": _seconds(now - each.ended_ns),
            "failed": _outcome(each.kind >> 8 & 0xFF),
        }
        for each in _entries(first, again, collectives)
        if each.ended_ns != 0
    ]
    return sorted(found, key=lambda call: call["ago_seconds"])[:MOST_CALLS]


def _entries(first: bytes, again: bytes, collectives: Sequence[str]) -> Iterator[_Entry]:
    """Those that hold a call, and were not being written."""
    n_bytes = 8 * WORDS
    for at in range(0, min(len(first), len(again)) // n_bytes * n_bytes, n_bytes):
        raw = first[at : at + n_bytes]
        sequence, since, ended, kind, place, size = memoryview(raw).cast("Q")[: len(FIELDS)]
        collective, n_name_bytes = kind & 0xFF, kind >> 32
        if since == 0 or sequence % 2 or collective >= len(collectives) or raw != again[at : at + n_bytes]:
            continue
        name = raw[8 * len(FIELDS) :][: min(n_name_bytes, _N_NAME_BYTES)].decode("utf-8", "replace")
        call = {
            "name": name if n_name_bytes <= _N_NAME_BYTES else f"{name}...",
            "collective": collectives[collective],
            "process_set": place & 0xFFFFFFFF,
            "lane": place >> 32,
            "bytes": size,
        }
        yield _Entry(since, ended, kind, call)


def _outcome(number: int) -> str:
    return OUTCOMES[number] if number < len(OUTCOMES) else "failed"


def _seconds(ns: int) -> float:
    return max(0, ns) / 1e9


def named(call: Call) -> str:
    """``allreduce 'grad'``."""
    of_set = f" of process set {call['process_set']}" if call["process_set"] else ""
    return f"{call['collective']} '{call['name']}'{of_set}"


def text(call: Call) -> str:
    """``allreduce 'grad', for 12.3 s``."""
    return f"{named(call)}, for {call['seconds']:.1f} s"


def oldest(calls: Sequence[Call], n_calls: int, least_seconds: float = LONG_SECONDS) -> str:
    """The oldest of a rank's n_calls in flight, if it is old enough, and how many there are besides; else empty."""
    if not calls or calls[0]["seconds"] < least_seconds:
        return ""
    n_more = n_calls - 1
    return text(calls[0]) + (f", and {n_more} more" if n_more > 0 else "")


def lines(calls: Sequence[Call], n_calls: int, last: Sequence[Call] = ()) -> str:
    """Those in flight that are known, and the last ones, a line each, below headings; empty without any."""
    told = [f"  {text(call)}: {'its data moves' if call['agreed'] else 'waits for other ranks'}" for call in calls]
    if (n_more := n_calls - len(calls)) > 0 and told:
        told.append(f"  and {n_more} more")
    ended = [f"  {ended_text(call)}" for call in last]
    parts = (["Calls in flight, the oldest first:", *told] if told else []) + (
        ["Calls before, the last one first; of direct rounds, some:", *ended] if ended else []
    )
    return "\n".join(parts) + "\n\n" if parts else ""


def ended_text(call: Call) -> str:
    """``allreduce 'grad', 0.8 s ago; it took 0.012 s``, and why it failed."""
    failed = f", and failed: {call['failed']}" if call["failed"] else ""
    return f"{named(call)}, {call['ago_seconds']:.1f} s ago; it took {call['seconds']:.3g} s{failed}"
