"""The calls of a rank that have not ended, as its page of counters shows them, and in words. Standard library only.

The rank is not asked, so they are also known of one that is stuck, stopped or dead. An entry that the rank was writing
when it was read is left out.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

#: The first words of an entry; the name follows.
FIELDS = ("sequence", "since_ns", "agreed_ns", "kind", "place", "n_bytes")
WORDS = 16
MOST_ENTRIES = 256
#: So many are told, the oldest.
MOST_CALLS = 16
LONG_SECONDS = 1.0  # a call that has been in flight for as long is worth a line
_N_NAME_BYTES = 8 * (WORDS - len(FIELDS))

#: One call: ``name``, ``collective``, ``process_set``, ``lane``, ``bytes``, for how many ``seconds`` it has been in
#: flight, and whether the ranks have ``agreed`` on it: its data moves, or waits for other calls.
Call = Mapping[str, Any]


def calls_of(first: bytes, again: bytes, collectives: Sequence[str]) -> list[dict[str, Any]]:
    """The calls, the oldest first, from two copies of the same entries, one made after the other."""
    now = time.monotonic_ns()
    n_bytes = 8 * WORDS
    entries = (first[at : at + n_bytes] for at in range(0, len(first), n_bytes) if first[at : at + n_bytes] ==
               again[at : at + n_bytes])  # fmt: skip
    found = [call for entry in entries if (call := _call(entry, now, collectives)) is not None]
    return sorted(found, key=lambda call: -call["seconds"])[:MOST_CALLS]


def _call(entry: bytes, now: int, collectives: Sequence[str]) -> dict[str, Any] | None:
    """None if there is none, or it was being written."""
    sequence, since, agreed, kind, place, n_bytes = memoryview(entry).cast("Q")[: len(FIELDS)]
    collective, n_name_bytes = kind & 0xFF, kind >> 8
    if since == 0 or sequence % 2 or collective >= len(collectives):
        return None
    name = entry[8 * len(FIELDS) :][: min(n_name_bytes, _N_NAME_BYTES)].decode("utf-8", "replace")
    return {
        "name": name if n_name_bytes <= _N_NAME_BYTES else f"{name}...",
        "collective": collectives[collective],
        "process_set": place & 0xFFFFFFFF,
        "lane": place >> 32,
        "bytes": n_bytes,
        "seconds": max(0, now - since) / 1e9,
        "agreed": agreed != 0,
    }


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


def lines(calls: Sequence[Call], n_calls: int) -> str:
    """Those that are known, a line each, below a heading; empty without any."""
    if not calls:
        return ""
    told = [f"  {text(call)}: {'its data moves' if call['agreed'] else 'waits for other ranks'}" for call in calls]
    n_more = n_calls - len(calls)
    more = [f"  and {n_more} more"] if n_more > 0 else []
    return "\n".join(["Calls in flight, the oldest first:", *told, *more]) + "\n\n"
