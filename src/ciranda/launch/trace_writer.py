"""Writes a trace in the format that Perfetto and chrome://tracing open, as it comes. Standard library only."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from ciranda.launch.errors import LaunchError

_MOST_EVENTS = 8192
_GZIP_LEVEL = 3  # a third larger than level 9, in a tenth of the time


class TraceFile:
    """A file that is open for a trace, compressed if its name ends with ``.gz``."""

    def __init__(self, path: Path) -> None:
        """LaunchError if it cannot be written."""
        self.path = path
        try:
            self._file: IO[bytes] = path.open("wb")
        except OSError as error:
            raise LaunchError(f"the timeline cannot be written to {path}: {error.strerror}", exit_code=2) from None
        self._to: IO[bytes] = self._file
        if path.name.endswith(".gz"):
            self._to = gzip.GzipFile("", "wb", _GZIP_LEVEL, self._file)  # type: ignore[assignment]
        self._before = '{"displayTimeUnit": "ns", "traceEvents": [\n'
        self._events: list[str] = []

    def put(self, event: str) -> None:
        """Write an event, an object in JSON; or several, with a comma between two."""
        self._events.append(event)
        if len(self._events) > _MOST_EVENTS:
            self._flush()

    def _flush(self) -> None:
        self._to.write((self._before + ",\n".join(self._events)).encode("ascii"))
        self._before = ",\n"
        self._events.clear()

    def complete(self, about: Mapping[str, Any]) -> None:
        """Write what the whole trace has to say, and close the file."""
        self._flush()
        self._to.write(f'\n], "otherData": {json.dumps(about)}}}\n'.encode("ascii"))
        self._close()

    def close(self) -> None:
        """Close the file, if complete() has not. What then cannot be written is of no use: it does not raise."""
        with suppress(OSError):
            self._close()

    def _close(self) -> None:
        try:
            if self._to is not self._file:
                self._to.close()
        finally:
            self._file.close()
