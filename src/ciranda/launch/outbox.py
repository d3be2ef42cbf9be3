"""The agent's way to its launcher. Standard library only."""

from __future__ import annotations

import os

from ciranda.launch import protocol
from ciranda.launch.protocol import Message


class Outbox:
    """The queue of messages to the launcher; never blocks. When the launcher has ended, messages are dropped."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.broken = False
        self._queue = bytearray()
        os.set_blocking(fd, False)

    def __len__(self) -> int:
        return len(self._queue)

    def send(self, message: Message) -> None:
        """Queue a message."""
        if not self.broken:
            self._queue += protocol.encode(message)

    def flush(self) -> None:
        """Write what the pipe takes now."""
        try:
            while self._queue:
                del self._queue[: os.write(self.fd, self._queue[: protocol.CHUNK_BYTES])]
        except BlockingIOError:
            pass
        except OSError:
            self.broken = True
            self._queue.clear()
