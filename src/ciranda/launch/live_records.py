"""The agent's part of a timeline that is switched on while the job runs: has its ranks record, and keeps the records.

The ranks answer as they do for stacks (`ciranda._records`): without a signal, and only if Python has joined a world.
Standard library only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from ciranda._stacks import RECORD, RECORD_LAST, RECORDED
from ciranda.launch import protocol
from ciranda.launch.protocol import Message
from ciranda.launch.record_file import RecordFile
from ciranda.launch.stacks import Answering, answering_of

_ASK_SECONDS = 0.02  # between two questions; the engine's ring of 8,192 calls must not fill in this time
_END_SECONDS = 2.0  # the longest wait for the last answer of a rank, whose GIL another thread may hold


class LiveRecords:
    """The records of the ranks of this host, until end().

    Attributes:
        deadline: when to call on_time().
    """

    def __init__(self, pids: Mapping[int, int]) -> None:
        """``pids``: the process of each rank. OSError if no file can be made."""
        self._ranks: dict[int, tuple[Answering, RecordFile]] = {}
        for rank, pid in pids.items():
            found = answering_of(pid)
            if found is not None:
                self._ranks[rank] = (found, RecordFile())
        self._then: Callable[[Iterator[Message]], None] | None = None
        self._give_up_at = 0.0
        self.deadline = time.monotonic()

    def on_time(self) -> bool:
        """Ask the ranks for new records, if it is time. Return False once the last have been handed over."""
        if time.monotonic() < self.deadline:
            return True
        self.deadline = time.monotonic() + _ASK_SECONDS
        if self._then is None:
            for asked, file in self._ranks.values():
                asked.tell(RECORD + file.path.encode())
            return True
        if time.monotonic() < self._give_up_at and any(
            not asked.read().startswith(RECORDED) for asked, _ in self._ranks.values()
        ):
            return True
        self._then(self._messages())
        return False

    def postpone(self) -> None:
        """Ask later: the ranks answer another question meanwhile."""
        self.deadline = time.monotonic() + _ASK_SECONDS

    def end(self, then: Callable[[Iterator[Message]], None]) -> None:
        """Stop the recording. Call ``then`` with the messages of all records, once the ranks have answered."""
        for asked, file in self._ranks.values():
            asked.tell(RECORD_LAST + file.path.encode())
        self._then = then
        self._give_up_at = time.monotonic() + _END_SECONDS
        self.deadline = time.monotonic()

    def _messages(self) -> Iterator[Message]:
        for rank, (_, file) in self._ranks.items():
            for piece in file.pieces(protocol.CHUNK_BYTES):
                yield {"t": "records", "rank": rank, "raw": piece}
        yield {"t": "records_end"}

    def close(self) -> None:
        """Remove the records. REQUIRES: no message of them is needed any more."""
        for asked, file in self._ranks.values():
            with suppress(OSError):
                asked.close()
            file.close()
        self._ranks.clear()
