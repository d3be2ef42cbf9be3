"""`horovod.runner.util.streams`: a stream from one thread to another."""

from __future__ import annotations

import threading

__all__ = ["Pipe"]


class Pipe:
    """What one thread writes, another reads. write() waits until the last text is read, read() until there is some."""

    def __init__(self) -> None:
        self._text: str | bytes | None = None
        self._is_closed = False
        self._changed = threading.Condition()

    def write(self, buf: str | bytes) -> None:
        """Raises RuntimeError on a closed pipe."""
        with self._changed:
            self._changed.wait_for(lambda: self._text is None or self._is_closed)
            if self._is_closed:
                raise RuntimeError("the pipe is closed")
            self._text = buf or None
            self._changed.notify_all()

    def read(self, length: int = -1) -> str | bytes | None:
        """At most `length` characters, all that was written if that is negative; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._text is not None or self._is_closed)
            if self._text is None:
                return None
            part = self._text if length < 0 else self._text[:length]
            self._text = self._text[len(part) :] or None
            self._changed.notify_all()
            return part

    def flush(self) -> None:
        """Nothing waits in between."""

    def close(self) -> None:
        """No more comes; who waits goes on."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
