"""The wire protocol of PMI-1, by which a process manager serves a key-value space to the processes that it starts.

Each process has a socket to its manager (PMI_FD). What a process puts, others get after a fence of all. An MPI library
in the process uses the same socket, before or after: requests are answered one by one, and nothing is kept here. A
process that has used the socket must finalize it at its end, or the manager ends all others; an MPI library does that
itself.
"""

from __future__ import annotations

import base64
import json
import os
import select
import stat
import time
from typing import Any

from ciranda.errors import InvalidArgumentError, TimeoutError

_PIECE_CHARACTERS = 500  # a whole request may have 1024 in some implementations
_LONGEST_ANSWER = 1 << 16
_WHY_CLOSED = (
    "MPI has been finalized in this process, or a program before it in the same process slot has used it. Call init() "
    "before MPI is finalized, and start each program by an mpiexec of its own, or by 'ciranda run'"
)


class Pmi:
    """The key-value space of this process's job.

    Args:
        descriptor: the number of the socket, as PMI_FD has it.
        seconds: the longest wait for an answer.

    Raises:
        InvalidArgumentError: it is no socket of a manager that answers.
    """

    def __init__(self, descriptor: int, seconds: float) -> None:
        self._words = f"the connection to mpiexec (PMI_FD={descriptor})"
        self._descriptor = descriptor
        self._seconds = seconds
        try:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                raise OSError
        except OSError:
            raise InvalidArgumentError(
                f"{self._words} is not open in this process: only the program that mpiexec itself has started is a "
                "rank, and what it becomes by exec. Start others with 'ciranda run'"
            ) from None
        self._space = self._ask("get_my_kvsname")["kvsname"]

    def publish(self, key: str, content: object) -> None:
        """Put an object of JSON, which others find after the next fence."""
        text = base64.urlsafe_b64encode(json.dumps(content).encode()).decode("ascii")
        pieces = [text[at : at + _PIECE_CHARACTERS] for at in range(0, len(text), _PIECE_CHARACTERS)]
        for number, piece in enumerate(pieces):
            self._ask(f"put kvsname={self._space} key=ciranda-{key}-{number} value={len(pieces)}.{piece}")

    def lookup(self, key: str) -> Any:
        """Return what a process has put before the last fence."""
        pieces: list[str] = []
        n_pieces = 1
        while len(pieces) < n_pieces:
            value = self._ask(f"get kvsname={self._space} key=ciranda-{key}-{len(pieces)}")["value"]
            count, _, piece = value.partition(".")
            n_pieces = int(count)
            pieces.append(piece)
        return json.loads(base64.urlsafe_b64decode("".join(pieces)))

    def fence(self) -> None:
        """Wait until all processes of the job have called this.

        Raises:
            InvalidArgumentError: one has ended instead.
            TimeoutError: they have not in time. The connection cannot be used any more.
        """
        self._ask("barrier_in", "a process of the job has ended without init()")

    def finalize(self) -> None:
        """Tell the manager that this process may end; the connection ends too."""
        self._ask("finalize")

    def _ask(self, request: str, why: str = _WHY_CLOSED) -> dict[str, str]:
        """Return the answer. `why`: what it means if the manager closes the connection instead."""
        try:
            os.write(self._descriptor, f"cmd={request}\n".encode("ascii"))
            answer = self._line(request)
        except ConnectionError:
            answer = ""
        if not answer:
            raise InvalidArgumentError(f"mpiexec has closed {self._words}: {why}")
        found = dict(word.partition("=")[::2] for word in answer.split())
        if found.get("rc", "0") != "0":
            raise InvalidArgumentError(f"{self._words} refused {request.partition(' value=')[0]}: {answer}")
        return found

    def _line(self, request: str) -> str:
        """Return the answer; "" from a closed socket. It stays blocking, as an MPI library that shares it expects."""
        deadline = time.monotonic() + self._seconds
        line = b""
        while not line.endswith(b"\n"):
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._descriptor], [], [], left)[0]:
                raise TimeoutError(
                    f"{self._words} gave no answer to {request.partition(' ')[0]} within {self._seconds:g} s"
                )
            received = os.read(self._descriptor, _LONGEST_ANSWER)
            if not received:
                return ""
            line += received
        return line.decode("ascii", "replace").strip()
