"""Writing to the launcher's own stdout and stderr without ever blocking in a write."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Iterable

# A pipe that polls writable takes this much at once (PIPE_BUF); so does a terminal whose output is not stopped.
_PIECE_BYTES = 4096


class Writer:
    """A queue of (fd, bytes), written in order as far as the readers take it. One thread."""

    def __init__(self) -> None:
        self._queue: deque[tuple[int, memoryview]] = deque()
        self._broken: set[int] = set()
        self.n_queued_bytes = 0

    @property
    def waiting_for(self) -> int | None:
        """The descriptor that must become writable next, if any."""
        return self._queue[0][0] if self._queue else None

    def put(self, writes: Iterable[tuple[int, bytes]]) -> None:
        """Queue, and write what can be written now."""
        for fd, data in writes:
            if data and fd not in self._broken:
                self._queue.append((fd, memoryview(data)))
                self.n_queued_bytes += len(data)
        self.flush()

    def flush(self, wait_seconds: float = 0) -> None:
        """Write until the queue is empty or a reader takes nothing for ``wait_seconds``."""
        while self._queue:
            fd, data = self._queue.popleft()
            if fd in self._broken:
                self.n_queued_bytes -= len(data)
                continue
            if not _is_writable(fd, wait_seconds):
                self._queue.appendleft((fd, data))
                return
            try:
                n_bytes = os.write(fd, data[:_PIECE_BYTES])
            except BlockingIOError:  # someone made it non-blocking, and took the space
                n_bytes = 0
                time.sleep(0)
            except OSError:  # nobody reads any more: the job goes on, its output is dropped
                self._broken.add(fd)
                n_bytes = len(data)
            self.n_queued_bytes -= n_bytes
            if n_bytes < len(data):
                self._queue.appendleft((fd, data[n_bytes:]))


def _is_writable(fd: int, wait_seconds: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(wait_seconds * 1000))
