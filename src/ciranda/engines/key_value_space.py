"""A key-value space that a process manager serves to the processes that it starts.

What a process puts, others get after a fence of all. The protocols are in `pmi.py` and `pmi2.py`, on a socket that each
process has to its manager (PMI_FD), and in `pmix.py`; here is what they share: objects as values of bounded length, and
reading with a limit of time from a socket that stays as an MPI library in the process expects it.
"""

from __future__ import annotations

import base64
import json
import os
import select
import stat
import time
from abc import ABC, abstractmethod
from typing import Any

from ciranda.errors import InvalidArgumentError, TimeoutError

_PIECE_CHARACTERS = 500  # a whole request may have 1024 in some implementations
_LONGEST_READ = 1 << 16


def is_socket(descriptor: int) -> bool:
    """Whether this process has a socket of this number."""
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False


class KeyValueSpace(ABC):
    """The key-value space of this process's job.

    Args:
        manager: the program that serves it, for messages.
        by: how this process has reached it, for messages.
        seconds: the longest wait for an answer.
    """

    def __init__(self, manager: str, by: str, seconds: float) -> None:
        self.manager = manager
        self.words = f"the connection to {manager} ({by})"
        self.seconds = seconds

    @abstractmethod
    def fence(self) -> None:
        """Wait until all processes of the job have called this.

        Raises:
            InvalidArgumentError: one has ended instead.
            TimeoutError: they have not in time. The connection cannot be used any more.
        """

    @abstractmethod
    def put(self, key: str, value: str) -> None:
        """Put a value that has neither space nor semicolon."""

    @abstractmethod
    def get(self, key: str, rank: int) -> str:
        """Return the value that this rank has put before the last fence."""

    def publish(self, key: str, content: object) -> None:
        """Put an object of JSON, which others find after the next fence."""
        text = base64.urlsafe_b64encode(json.dumps(content).encode()).decode("ascii")
        pieces = [text[at : at + _PIECE_CHARACTERS] for at in range(0, len(text), _PIECE_CHARACTERS)]
        for number, piece in enumerate(pieces):
            self.put(f"ciranda-{key}-{number}", f"{len(pieces)}.{piece}")

    def lookup(self, key: str, rank: int) -> Any:
        """Return what this rank has published before the last fence."""
        pieces: list[str] = []
        n_pieces = 1
        while len(pieces) < n_pieces:
            count, _, piece = self.get(f"ciranda-{key}-{len(pieces)}", rank).partition(".")
            n_pieces = int(count)
            pieces.append(piece)
        return json.loads(base64.urlsafe_b64decode("".join(pieces)))


class SocketSpace(KeyValueSpace):
    """That at the other end of a socket.

    Args:
        manager: the program that serves it, for messages.
        descriptor: the number of the socket, as PMI_FD has it.
        seconds: the longest wait for an answer.

    Raises:
        InvalidArgumentError: it is no socket.
    """

    def __init__(self, manager: str, descriptor: int, seconds: float) -> None:
        super().__init__(manager, f"PMI_FD={descriptor}", seconds)
        self.descriptor = descriptor
        if not is_socket(descriptor):
            raise InvalidArgumentError(
                f"{self.words} is not open in this process: only the program that {manager} itself has started is a "
                "rank, and what it becomes by exec. Start others with 'ciranda run'"
            )

    def write(self, message: str) -> None:
        """Send a whole message.

        Raises:
            ConnectionError: the manager has closed the connection.
        """
        left = message.encode("ascii")
        while left:
            left = left[os.write(self.descriptor, left) :]

    def read(self, deadline: float, n_bytes: int = _LONGEST_READ) -> bytes:
        """Return what comes next, at most `n_bytes`; nothing from a closed socket, which stays blocking.

        Raises:
            ConnectionError: the manager has closed the connection.
            TimeoutError: nothing comes until the deadline.
        """
        if not select.select([self.descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError(f"{self.words} gave no answer within {self.seconds:g} s")
        return os.read(self.descriptor, n_bytes)
