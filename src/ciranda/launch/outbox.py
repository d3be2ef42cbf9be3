"""The way of messages between launcher and agent, in either direction. Standard library only."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress

from ciranda.launch import protocol
from ciranda.launch.protocol import Message


class Outbox:
    """The queue of messages to the other side; never blocks. When that has ended, messages are dropped."""

    def __init__(self, fd: int, seal: Callable[[bytes], bytes] = bytes) -> None:
        """``seal`` makes what is sent of each encoded message."""
        self.fd = fd
        self._seal = seal
        self.broken = False
        self._queue = bytearray()
        os.set_blocking(fd, False)

    def __len__(self) -> int:
        return len(self._queue)

    def send(self, message: Message) -> None:
        """Queue a message."""
        if not self.broken:
            self._queue += self._seal(protocol.encode(message))

    def flush(self) -> None:
        """Write what the pipe takes now."""
        try:
            while self._queue:
                with memoryview(self._queue) as all_of_it, all_of_it[: protocol.CHUNK_BYTES] as piece:
                    n_bytes = os.write(self.fd, piece)
                del self._queue[:n_bytes]
        except BlockingIOError:
            pass
        except OSError:
            self.broken = True
            self.discard()

    def discard(self) -> None:
        """Drop what has not been written."""
        self._queue.clear()


def received(fd: int) -> bytes | None:
    """What can be read now, a chunk at most: None if nothing came, b"" at the end or if the connection is broken."""
    try:
        return os.read(fd, protocol.CHUNK_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def widen(fd: int) -> None:
    """Let a pipe hold a whole chunk, so that large messages take few turns. Otherwise, if the system refuses, as is."""
    with suppress(OSError):  # no pipe, or this user has as many wide ones as allowed
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, protocol.CHUNK_BYTES)
