"""What the launcher sees of the ranks' memory and links while their calls are recorded: counters of the timeline.

Each look at the totals adds what has changed since the one before, to a file without a name, as the records are in.
Standard library only.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ciranda.launch.rates import is_same_world
from ciranda.launch.record_file import Pieces, RecordFile

LOOK_SECONDS = 0.5
_READ_BYTES = 1 << 16
_OF_LINKS = {"sent_bytes": "sent bytes/s", "received_bytes": "received bytes/s", "retries": "retries/s"}

#: The rank, and what is counted.
Track = tuple[int, str]


class TraceCounters:
    """The values so far; the times count from ``began_ns`` of the launcher's clock."""

    def __init__(self, began_ns: int) -> None:
        """OSError if there is no file left."""
        self.file = RecordFile()
        self._began = began_ns
        self._before: dict[int, tuple[int, Mapping[str, Any]]] = {}
        self._shown: dict[Track, Mapping[str, float]] = {}

    def take(self, totals: Sequence[Mapping[str, Any]]) -> None:
        """Take what the ranks' totals are now. What finds no room is left out."""
        now = time.monotonic_ns() - self._began
        lines: list[str] = []
        for each in totals:
            rank = each["rank"]
            if "memory_bytes_of" in each:
                self._add((rank, "engine memory"), now, each["memory_bytes_of"], lines)
            since, before = self._before.get(rank, (now, {}))
            if since < now and is_same_world(before, each) and "all_links" in each:
                more = {name: each["all_links"][name] - before["all_links"][name] for name in _OF_LINKS}
                rates = {shown: round(more[name] * 1e9 / (now - since)) for name, shown in _OF_LINKS.items()}
                self._add((rank, "links"), since, rates, lines)
            self._before[rank] = now, each
        with suppress(OSError):
            self.file.append("".join(lines).encode("ascii"))

    def _add(self, track: Track, at: int, values: Mapping[str, float], lines: list[str]) -> None:
        shown = self._shown.get(track)
        if values == shown or (shown is None and not any(values.values())):
            return
        self._shown[track] = values
        lines.append(json.dumps([at, *track, values], separators=(",", ":")) + "\n")


def events_of(file: Pieces, begin: int, end: int) -> Iterator[str]:
    """The events of the trace between two times: at the first, what was known before. None if they are not in order."""
    if begin > end:
        return
    known: dict[Track, tuple[int, Mapping[str, float]]] = {}
    for at, rank, what, values in map(json.loads, _lines(file)):
        track = rank, what
        if at < begin:
            known[track] = begin, values
        elif at <= end:
            yield from _events({track: known.pop(track)} if track in known else {})
            yield from _events({track: (at, values)})
    yield from _events(known)


def _events(values: Mapping[Track, tuple[int, Mapping[str, float]]]) -> Iterator[str]:
    for (rank, what), (at, of_track) in values.items():
        args = json.dumps(of_track, separators=(",", ":"))
        yield f'{{"name":"{what}","ph":"C","pid":{rank},"ts":{at / 1000:.3f},"args":{args}}}'


def _lines(file: Pieces) -> Iterator[bytes]:
    rest = b""
    for piece in file.pieces(_READ_BYTES):
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
