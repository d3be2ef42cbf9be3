"""Writing to the launcher's own stdout and stderr without ever blocking in a write."""

from __future__ import annotations

import os
import select
import signal
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

# A pipe that polls writable takes this much at once (PIPE_BUF); so does a terminal whose output is not stopped.
_PIECE_BYTES = 4096
_NAMES = {1: "the standard output", 2: "the standard error output"}


@dataclass(frozen=True)
class WriteFailure:
    """The error of a descriptor."""

    fd: int
    error: OSError

    @property
    def exit_code(self) -> int:
        """As of a program that a closed pipe ends; else that of any failure."""
        return 128 + signal.SIGPIPE if isinstance(self.error, BrokenPipeError) else 1

    def __str__(self) -> str:
        name = _NAMES.get(self.fd, f"descriptor {self.fd}")
        if isinstance(self.error, BrokenPipeError):
            return f"nobody reads {name} any more"
        return f"cannot write to {name}: {self.error.strerror}"


class Writer:
    """A queue of (fd, bytes), written in order as far as the readers take it. One thread.

    Attributes:
        failure: the first error of a descriptor, and which it was; what is to be written there is dropped from then on.
    """

    def __init__(self) -> None:
        self._queue: deque[tuple[int, memoryview]] = deque()
        self._broken: set[int] = set()
        self.failure: WriteFailure | None = None
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
            except OSError as error:
                self._broken.add(fd)
                self.failure = self.failure or WriteFailure(fd, error)
                n_bytes = len(data)
            self.n_queued_bytes -= n_bytes
            if n_bytes < len(data):
                self._queue.appendleft((fd, data[n_bytes:]))


def _is_writable(fd: int, wait_seconds: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(wait_seconds * 1000))
