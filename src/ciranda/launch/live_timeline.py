"""The launcher's part of a timeline that is switched on and off while the job runs, by `ciranda timeline`.

The launcher keeps the records in files until the next such timeline or the end of the job. `ciranda timeline`, which
runs on the same machine, reads and merges them, so that the launcher never waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ciranda.launch.collecting import Collecting
from ciranda.launch.link import Link
from ciranda.launch.protocol import Message

#: Takes the answer to `ciranda timeline`.
Put = Callable[[dict[str, Any]], None]


class LiveTimeline:
    """At most one at a time.

    Args:
        host_of: by rank, also of those that come later.
        links: to the agents, likewise. Those that come while calls are recorded do not take part.
        is_here: whether a link leads to this host.
        is_elastic: as in `Collecting`.
    """

    def __init__(
        self, host_of: Mapping[int, str], links: Sequence[Link], is_here: Callable[[Link], bool], is_elastic: bool
    ) -> None:
        self._host_of = host_of
        self._is_elastic = is_elastic
        self._links = links
        self._is_here = is_here
        self._collecting: Collecting | None = None
        self._awaited: list[Link] = []
        self._ended: Put | None = None

    @property
    def is_on(self) -> bool:
        """Whether messages of agents may belong to it."""
        return self._collecting is not None

    @property
    def is_recording(self) -> bool:
        """Whether ranks record now."""
        return bool(self._awaited)

    def begin(self, put: Put) -> None:
        """Compare the clocks of all hosts, then tell the ranks to record."""
        if self._awaited:
            put({"refused": "the calls of this job are being recorded already, by another 'ciranda timeline'"})
            return
        self.close()
        self._collecting = Collecting(self._host_of, self._is_elastic)
        self._awaited = self._living()
        self._ended = None
        n_left = len(self._awaited)

        def compared() -> None:
            nonlocal n_left
            n_left -= 1
            if n_left == 0:
                for link in self._awaited:
                    link.send({"t": "record"})
                put({"ranks": len(self._host_of)})

        for link in list(self._awaited):
            self._collecting.begin(link, self._is_here(link), compared)

    def end(self, put: Put) -> None:
        """Stop the recording, and answer once all records have arrived."""
        if self._collecting is None or self._ended is not None:
            put({"refused": "the calls of this job are not being recorded"})
            return
        self._ended = put
        for link in self._awaited:
            link.send({"t": "record_end"})
        self._answer_if_complete()

    def take(self, link: Link, rank_of: Callable[[Link, Message], int], message: Message) -> None:
        """Take an agent's clock or records; ProtocolError if they are none."""
        assert self._collecting is not None
        if message["t"] == "clock":
            self._collecting.on_clock(link, message)
        elif message["t"] == "records_end":
            self._collecting.on_end(link)
            self.end_of(link)
        else:
            self._collecting.on_records(rank_of(link, message), message)
        self._answer_if_complete()

    def end_of(self, link: Link) -> None:
        """The agent has sent everything, or has gone."""
        if link in self._awaited:
            self._awaited.remove(link)
            self._answer_if_complete()

    def on_totals(self, totals: Sequence[Mapping[str, Any]]) -> None:
        """Take what was counted until now."""
        if self._collecting is not None and self.is_recording:
            self._collecting.on_totals(totals)

    def compare(self) -> None:
        """Compare the clocks again, if it is time."""
        if self._collecting is not None and self._awaited:
            self._collecting.compare(self._awaited)

    @property
    def deadline(self) -> float | None:
        """When to call compare()."""
        return self._collecting.deadline if self._collecting is not None and self._awaited else None

    def close(self) -> None:
        """Remove the records."""
        if self._collecting is not None:
            self._collecting.close()
            self._collecting = None

    def _living(self) -> list[Link]:
        return [link for link in self._links if link.done_reason is None]

    def _answer_if_complete(self) -> None:
        if self._ended is None or self._awaited or self._collecting is None or self._collecting.is_comparing:
            return
        put, self._ended = self._ended, None
        put(self._collecting.handed_over())
