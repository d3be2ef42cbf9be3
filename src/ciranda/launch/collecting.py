"""What the ranks have recorded, and the clocks of their hosts, as the launcher learns them from the agents."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ciranda.launch import protocol
from ciranda.launch.clocks import HostClock, Reading
from ciranda.launch.errors import ProtocolError
from ciranda.launch.link import Link
from ciranda.launch.protocol import Message
from ciranda.launch.record_file import RecordFile
from ciranda.launch.timeline import RankRecords, Summary, about, write_timeline
from ciranda.launch.trace_counters import TraceCounters, events_of
from ciranda.launch.trace_writer import TraceFile

COMPARE_SECONDS = 10.0  # between two comparisons of the clocks


class Collecting:
    """For the records of one job: compares the clocks of hosts, takes records, and at the end merges or keeps them.

    Attributes:
        deadline: when to call compare() again.
    """

    def __init__(self, host_of: Mapping[int, str], is_elastic: bool) -> None:
        """Begin.

        Args:
            host_of: by rank, also of those that come later.
            is_elastic: whether a rank is a place, where one process follows another.
        """
        self._is_elastic = is_elastic
        self._host_of = host_of
        self._files: dict[int, RecordFile] = {}
        self._failure: OSError | None = None  # why records could not be kept
        self._clocks: dict[str, HostClock] = {}
        self._then: dict[str, Callable[[], None]] = {}  # by host, for the end of a burst that is under way
        self._began = time.monotonic_ns()
        self._began_at = time.time()
        self._counters = TraceCounters(self._began)
        self._kept = ExitStack()
        self._kept.callback(self._counters.file.close)
        self.deadline: float | None = None

    def begin(self, link: Link, is_here: bool, then: Callable[[], None]) -> None:
        """Compare the clock of a host with the launcher's, unless it is the same; then call ``then``."""
        self._clocks[link.host] = HostClock()
        if is_here or set(self._host_of.values()) == {link.host}:
            then()
            return
        self.deadline = time.monotonic() + COMPARE_SECONDS
        self._compare(link, then)

    def compare(self, links: Iterable[Link]) -> None:
        """Compare the clocks again, if it is time."""
        if self.deadline is None or time.monotonic() < self.deadline:
            return
        self.deadline = time.monotonic() + COMPARE_SECONDS
        for link in links:
            if link.done_reason is None and link.host not in self._then and self._is_compared(link):
                self._compare(link, lambda: None)

    def forget(self, link: Link) -> None:
        """Wait for no answer of an agent that was lost."""
        self._then.pop(link.host, None)

    def _is_compared(self, link: Link) -> bool:
        return link.host in self._clocks and self._clocks[link.host].is_compared

    @property
    def is_comparing(self) -> bool:
        """Whether an answer is awaited."""
        return bool(self._then)

    def _compare(self, link: Link, then: Callable[[], None]) -> None:
        is_under_way = link.host in self._then
        self._then[link.host] = then
        if not is_under_way:
            link.send({"t": "clock", "asked": time.monotonic_ns()})

    def on_clock(self, link: Link, message: Message) -> None:
        """Take an agent's answer; ProtocolError if it is none."""
        came = time.monotonic_ns()
        asked = protocol.int_of(message, "asked", 0, came)
        now = protocol.int_of(message, "now", 0, 1 << 63)
        if link.host not in self._then:
            raise ProtocolError("clock: it was not asked")
        if self._clocks[link.host].take(asked, now, came):
            self._then.pop(link.host)()
        else:
            link.send({"t": "clock", "asked": time.monotonic_ns()})

    def on_records(self, rank: int, message: Message) -> None:
        """Take a piece of what a rank has recorded; ProtocolError if there is none.

        From the first that cannot be kept on, none is: the job goes on, and write() raises.
        """
        data = protocol.raw_of(message)
        if self._failure is not None:
            return
        try:
            self._file_of(rank).append(data)
        except OSError as error:
            self._failure = OSError(error.errno, error.strerror, error.filename or tempfile.gettempdir())

    def _file_of(self, rank: int) -> RecordFile:
        if rank not in self._files:
            self._files[rank] = RecordFile()
        return self._files[rank]

    def on_totals(self, totals: Sequence[Mapping[str, Any]]) -> None:
        """Take what was counted until now: memory and links become counters of the timeline."""
        self._counters.take(totals)

    def on_end(self, link: Link) -> None:
        """All records of a host have come: compare its clock for the last time, then let its agent end."""
        for rank, file in self._files.items():
            if self._host_of[rank] == link.host:
                file.drop_incomplete()  # another agent of this host may have more
        if self._is_compared(link):
            self._compare(link, lambda: link.send({"t": "collected"}))
        else:
            link.send({"t": "collected"})

    def write(self, to: TraceFile, job: str, command: Sequence[str]) -> Summary:
        """Write the timeline of the records that were kept; OSError or ProtocolError if any were not, or it fails."""
        clock = HostClock()
        ranks = [
            RankRecords(rank, host, self._clocks.get(host, clock), self._file_of(rank))
            for rank, host in sorted(self._host_of.items())
        ]
        summary = write_timeline(ranks, to, self._began, self._is_elastic)
        for event in events_of(self._counters.file, summary.begin_ns, summary.end_ns):
            to.put(event)
        to.complete(about(summary, ranks, self._began_at, job, command))
        if self._failure is not None:
            raise self._failure
        return summary

    @property
    def failure(self) -> str | None:
        """Why records could not be kept; None if all were."""
        return None if self._failure is None else f"{self._failure.strerror}: {self._failure.filename}"

    def records(self) -> Iterator[tuple[int, bytes]]:
        """What has come of each rank, in pieces."""
        for rank, file in sorted(self._files.items()):
            for piece in file.pieces(protocol.CHUNK_BYTES):
                yield rank, piece

    def clocks(self) -> dict[str, list[Reading]]:
        """By host, what is known of its clock; nothing of one that is the launcher's."""
        return {host: clock.readings for host, clock in self._clocks.items() if clock.is_compared}

    def handed_over(self) -> dict[str, Any]:
        """What another process of this machine needs to write the timeline, while this object is not closed."""
        return {
            "began_ns": self._began,
            "began_at": self._began_at,
            "is_elastic": self._is_elastic,
            "clocks": self.clocks(),
            "failure": self.failure,
            "counters": self._counters.file.path,
            "ranks": [
                {"rank": rank, "host": host, "path": self._file_of(rank).path}
                for rank, host in sorted(self._host_of.items())
            ],
        }

    def close(self) -> None:
        """Remove the records. Idempotent."""
        self._kept.close()
        while self._files:
            self._files.popitem()[1].close()


def told(summary: Summary, steps: tuple[int, int], path: Path) -> list[str]:
    """What the user hears of a timeline."""
    n_ranks = summary.n_ranks - len(summary.missing)
    clocks = f", clocks of hosts within {summary.bound_ns / 1000:.0f} us" if summary.bound_ns else ""
    said = [
        f"timeline of {n_ranks} ranks, {summary.n_calls} calls{clocks}: {path} (open it in https://ui.perfetto.dev)"
    ]
    if summary.missing and steps[0] > 0:
        ranks = ", ".join(map(str, summary.missing))
        said.append(f"warning: the timeline has nothing of ranks {ranks}, which have ended fewer than {steps[0]} steps")
    elif summary.missing:
        ranks = ", ".join(map(str, summary.missing))
        said.append(f"warning: the timeline has nothing of ranks {ranks}, which recorded no call")
    if summary.lost:
        n_lost = sum(summary.lost.values())
        said.append(f"warning: the timeline lacks {n_lost} calls, which came faster than they could be written")
    return said
