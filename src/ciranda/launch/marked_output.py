"""The output of a job that runs in another thread: kept until the thread that shows it takes it.

Ranks write a mark when they have ended a call, so that what they wrote in it is known to have come.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable
from contextlib import suppress

from ciranda.launch.writer import Writer

_MOST_BYTES = 16 << 20  # while nobody takes it
_MARK = re.compile(rb"ciranda-mark-[0-9a-f]{16}\n")
_ONLY_PREFIX = re.compile(rb"(\[[0-9]+\]<std(out|err)>:)?")


def new_mark() -> str:
    """A line that nobody else writes."""
    return f"ciranda-mark-{os.urandom(8).hex()}"


def unmarked(output: bytes) -> bytes:
    """What a rank wrote, without the marks of its calls."""
    return b"".join(_MARK.sub(b"\n", line) for line in output.splitlines(keepends=True) if not _MARK.fullmatch(line))


class MarkedOutput(Writer):
    """Takes the place of the launcher's writer. put() is for its thread; the rest for the one that shows.

    Attributes:
        wake_fd: readable when there is something to take.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._mark = b"\n"  # in no line
        self._n_marks = 0
        self._kept: list[tuple[int, bytes]] = []
        self._n_kept_bytes = 0
        self.wake_fd, self._write_fd = os.pipe()
        for fd in (self.wake_fd, self._write_fd):
            os.set_blocking(fd, False)

    def expect(self, mark: str) -> None:
        """Count the lines that end with ``mark`` from now on; they are not shown."""
        with self._lock:
            self._mark, self._n_marks = mark.encode(), 0

    @property
    def n_marks(self) -> int:
        """How many have come."""
        return self._n_marks

    def put(self, writes: Iterable[tuple[int, bytes]]) -> None:
        """Keep it; beyond a bound, the oldest is dropped."""
        with self._lock:
            for fd, data in writes:
                for line in data.splitlines(keepends=True):
                    self._keep(fd, line)
            while self._n_kept_bytes > _MOST_BYTES:
                self._n_kept_bytes -= len(self._kept.pop(0)[1])
        self.wake()

    def wake(self) -> None:
        """Make wake_fd readable; from anywhere, also a signal handler."""
        with suppress(OSError):  # full, or closed
            os.write(self._write_fd, b"x")

    def _keep(self, fd: int, line: bytes) -> None:
        if line.rstrip(b"\n").endswith(self._mark):
            self._n_marks += 1
            line = line.rstrip(b"\n").removesuffix(self._mark)
            if _ONLY_PREFIX.fullmatch(line):
                return
            line += b"\n"
        self._kept.append((fd, line))
        self._n_kept_bytes += len(line)

    def take(self) -> list[tuple[int, bytes]]:
        """Return what has come, with its descriptor."""
        with suppress(OSError):
            while os.read(self.wake_fd, 4096):
                pass
        with self._lock:
            kept, self._kept, self._n_kept_bytes = self._kept, [], 0
        return kept

    def flush(self, wait_seconds: float = 0) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """Close the descriptors."""
        with self._lock:
            for fd in (self.wake_fd, self._write_fd):
                os.close(fd)
            self._write_fd = -1
