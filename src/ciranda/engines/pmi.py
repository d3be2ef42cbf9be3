"""The wire protocol of PMI-1, as mpiexec of MPICH and Intel MPI serves it.

An MPI library in the process uses the same socket, before or after: requests are answered one by one, and nothing is
kept here. A process that has used the socket must finalize it at its end, or the manager ends all others; an MPI
library does that itself.
"""

from __future__ import annotations

import time

from ciranda.engines.key_value_space import SocketSpace
from ciranda.errors import InvalidArgumentError, TimeoutError

_WHY_CLOSED = (
    "MPI has been finalized in this process, or a program before it in the same process slot has used it. Call init() "
    "before MPI is finalized, and start each program by an mpiexec of its own, or by 'ciranda run'"
)


class Pmi(SocketSpace):
    """The key-value space of the processes of an mpiexec.

    Args:
        descriptor: the number of the socket, as PMI_FD has it.
        seconds: the longest wait for an answer.

    Raises:
        InvalidArgumentError: it is no socket of a manager that answers.
    """

    def __init__(self, descriptor: int, seconds: float) -> None:
        super().__init__("mpiexec", descriptor, seconds)
        self._space = self._ask("get_my_kvsname")["kvsname"]

    def put(self, key: str, value: str) -> None:
        """As in the base."""
        self._ask(f"put kvsname={self._space} key={key} value={value}")

    def get(self, key: str, rank: int) -> str:
        """As in the base."""
        return self._ask(f"get kvsname={self._space} key={key}")["value"]

    def fence(self) -> None:
        """As in the base."""
        self._ask("barrier_in", "a process of the job has ended without init()")

    def finalize(self) -> None:
        """Tell the manager that this process may end; the connection ends too."""
        self._ask("finalize")

    def _ask(self, request: str, why: str = _WHY_CLOSED) -> dict[str, str]:
        """Return the answer. `why`: what it means if the manager closes the connection instead."""
        try:
            self.write(f"cmd={request}\n")
            answer = self._line(request)
        except ConnectionError:
            answer = ""
        if not answer:
            raise InvalidArgumentError(f"mpiexec has closed {self.words}: {why}")
        found = dict(word.partition("=")[::2] for word in answer.split())
        if found.get("rc", "0") != "0":
            raise InvalidArgumentError(f"{self.words} refused {request.partition(' value=')[0]}: {answer}")
        return found

    def _line(self, request: str) -> str:
        """Return the answer; "" from a closed socket."""
        deadline = time.monotonic() + self.seconds
        line = b""
        while not line.endswith(b"\n"):
            try:
                received = self.read(deadline)
            except TimeoutError:
                raise TimeoutError(
                    f"{self.words} gave no answer to {request.partition(' ')[0]} within {self.seconds:g} s"
                ) from None
            if not received:
                return ""
            line += received
        return line.decode("ascii", "replace").strip()
