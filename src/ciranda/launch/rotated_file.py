"""A file of bounded size: what does not fit is kept in one earlier file of the same size, and before that dropped."""

from __future__ import annotations

import os
from pathlib import Path

_TAIL_BYTES = 64 << 10  # copied at once


class RotatedFile:
    """A file that is written at its end. When it is full, it is renamed to NAME.1, and a new one goes on.

    A line stays in one file, unless it alone is longer than the bound. It ends with a newline, or with a carriage
    return, as in a progress bar.

    Attributes:
        path: its name.
    """

    def __init__(self, path: Path, max_bytes: int | None = None) -> None:
        """Make it empty, without an earlier one; OSError if that is impossible. ``max_bytes`` None: there is no bound.

        REQUIRES: max_bytes > 0.
        """
        self.path = path
        self._earlier = path.with_name(f"{path.name}.1")
        self._max_bytes = max_bytes
        self._earlier.unlink(missing_ok=True)
        self._file = path.open("w+b", buffering=0)
        self._size = 0
        self._line_at = 0  # where the line begins that is not complete

    def write(self, data: bytes) -> None:
        """Append at once; OSError when the disk will not take it."""
        rest = memoryview(data)
        while rest:
            n_bytes = self._n_that_fit(rest)
            if n_bytes == 0:
                self._rotate()
                continue
            self._append(rest[:n_bytes])
            rest = rest[n_bytes:]

    def close(self) -> None:
        """OSError if the disk has not taken what was written."""
        self._file.close()

    def _n_that_fit(self, data: memoryview) -> int:
        """How many bytes to append to this file: whole lines, or all. 0: it is full, and to be rotated first."""
        room = len(data) if self._max_bytes is None else self._max_bytes - self._size
        if len(data) <= room:
            return len(data)
        return _end_of_lines(bytes(data[:room])) or room

    def _append(self, data: memoryview) -> None:
        end = _end_of_lines(bytes(data))
        if end:
            self._line_at = self._size + end
        while data:
            n_written = self._file.write(data) or 0
            self._size += n_written
            data = data[n_written:]

    def _rotate(self) -> None:
        """Begin another file. A line that is not complete moves there, unless it has filled this one."""
        begins_at = self._line_at or self._size
        os.replace(self.path, self._earlier)
        full, self._file = self._file, self.path.open("w+b", buffering=0)
        self._size = self._line_at = 0
        with full:
            full.seek(begins_at)
            while tail := full.read(_TAIL_BYTES):
                self._append(memoryview(tail))
            full.truncate(begins_at)


def _end_of_lines(data: bytes) -> int:
    """The length of the whole lines in front. A carriage return before a newline ends none."""
    return data.rfind(b"\n") + 1 or data.rfind(b"\r") + 1
