"""The agent's part of a timeline that is switched on while the job runs: has its ranks record, and keeps the records.

A rank hears of it as of a request for stacks (`ciranda._stacks`): without a signal, and only where Python has joined a
world. Its engine then writes to a file of the agent's. In an elastic job a process that joins a world later, or the
next one, is asked then. Standard library only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from ciranda._stacks import RECORD, RECORD_END, RECORDED
from ciranda.launch import protocol
from ciranda.launch.page import RankPage
from ciranda.launch.protocol import Message
from ciranda.launch.record_file import RecordFile
from ciranda.launch.stacks import Answering, answering_of

_LOOK_SECONDS = 0.1  # between two looks for ranks that have joined another world
_JOIN_SECONDS = 2.0  # from then on, in which Python may begin to answer, and to record
_ANSWER_LOOK_SECONDS = 0.02  # between two looks for the last answers
_END_SECONDS = 2.0  # for the last answer of a rank whose GIL is kept


class _Recorded:
    """A rank: its file, and the process that writes to it."""

    def __init__(self) -> None:
        """OSError if there is no file left."""
        self.file = RecordFile()
        self.asked: Answering | None = None
        self._world = RankPage.NO_WORLD
        self._n_bytes = 0
        self._give_up_at = 0.0

    def attend(self, world: tuple[int, int]) -> None:
        """Ask a process that has joined a world until it records there; the file then has more than before."""
        if world != self._world:
            if world[0] != self._world[0]:
                self.leave()
                self.file.drop_incomplete()
            self._world = world
            self._n_bytes = self.file.n_bytes
            self._give_up_at = time.monotonic() + _JOIN_SECONDS
        if world == RankPage.NO_WORLD or self.file.n_bytes > self._n_bytes or time.monotonic() > self._give_up_at:
            return
        self.asked = self.asked or answering_of(world[0])
        if self.asked is not None:
            self.asked.tell(RECORD + self.file.path.encode())

    def end(self) -> None:
        """Ask it to record no more."""
        if self.asked is not None:
            self.asked.tell(RECORD_END)

    def is_complete(self, world: tuple[int, int]) -> bool:
        """Whether it has done so, or was never asked, or has ended; ``world`` is where the rank is now."""
        return self.asked is None or self.asked.pid != world[0] or self.asked.read().startswith(RECORDED)

    def leave(self) -> None:
        """Ask nobody any more."""
        if self.asked is not None:
            with suppress(OSError):
                self.asked.close()
            self.asked = None


class LiveRecords:
    """The records of the ranks of this host, until end().

    Attributes:
        deadline: when to call on_time().
    """

    def __init__(self, pages: Mapping[int, RankPage]) -> None:
        """``pages``: of the ranks, also of those that are yet to come; OSError if there is no file left."""
        self._pages = pages
        self._ranks = {rank: _Recorded() for rank in pages}
        self._then: Callable[[Iterator[Message]], None] | None = None
        self._give_up_at = 0.0
        self.deadline = time.monotonic()

    def on_time(self) -> bool:
        """Have those ranks record that do not yet, if it is time. False: this was the end."""
        if time.monotonic() < self.deadline:
            return True
        if self._then is None:
            self.postpone()
            for rank, page in self._pages.items():
                with suppress(OSError):  # of a new rank, for which there is no file left
                    if rank not in self._ranks:
                        self._ranks[rank] = _Recorded()
                    self._ranks[rank].attend(page.world())
            return True
        if time.monotonic() < self._give_up_at and not all(
            recorded.is_complete(self._pages[rank].world()) for rank, recorded in self._ranks.items()
        ):
            self.deadline = time.monotonic() + _ANSWER_LOOK_SECONDS
            return True
        self._then(self._messages())
        return False

    def postpone(self) -> None:
        """Look later, as while the ranks answer somebody else."""
        self.deadline = time.monotonic() + _LOOK_SECONDS

    def end(self, then: Callable[[Iterator[Message]], None]) -> None:
        """Have the ranks record no more; call ``then`` with all that they have recorded, once it is there."""
        for recorded in self._ranks.values():
            recorded.end()
        self._then = then
        self._give_up_at = time.monotonic() + _END_SECONDS
        self.deadline = time.monotonic()

    def _messages(self) -> Iterator[Message]:
        for rank, recorded in self._ranks.items():
            for piece in recorded.file.pieces(protocol.CHUNK_BYTES):
                yield {"t": "records", "rank": rank, "raw": piece}
        yield {"t": "records_end"}

    def close(self) -> None:
        """Remove the records. REQUIRES: no message of them is needed any more."""
        for recorded in self._ranks.values():
            recorded.leave()
            recorded.file.close()
        self._ranks.clear()
