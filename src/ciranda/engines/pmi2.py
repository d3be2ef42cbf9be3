"""The wire protocol of PMI-2, as Slurm's daemons serve it to the tasks of `srun --mpi=pmi2`.

The first line of a connection is PMI-1's, and says which version follows. After it a message is six characters with the
length of the rest, and `cmd=NAME;KEY=VALUE;...`: https://github.com/pmodels/mpich/blob/main/doc/wiki/design/PMI-2_Wire_Protocol.md.
Slurm knows no escape for a semicolon in a value.

Slurm closes a connection that says its first line twice. So that a second program of the same task, as in
`srun sh -c 'a && b'`, can use it, the socket itself is marked by its priority, which sockets of this kind have but do
not use. For the same reason nothing is finalized here: Slurm does not ask for it.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress

from ciranda.engines.key_value_space import SocketSpace
from ciranda.errors import InvalidArgumentError

_FIRST_LINE = "cmd=init pmi_version=2 pmi_subversion=0\n"
_LENGTH_CHARACTERS = 6
_LONGEST_MESSAGE = 1 << 16
_ANSWER_SECONDS = 5.0  # once the time for others is over

# Priorities of the socket. What is not marked has 0.
_IS_OPEN = 2
_IS_IN_FENCE = 3

_REMEDY = (
    "give each program an srun of its own, have MPI initialized by mpi4py before init(), or set "
    "CIRANDA_HANDOVER_FOLDER to a folder that all nodes share, where the ranks meet instead"
)
_WHY_CLOSED = "MPI, or a program before it in the same task, has used it: " + _REMEDY


class Pmi2(SocketSpace):
    """The key-value space of the tasks of a job step.

    Args:
        descriptor: the number of the socket, as PMI_FD has it.
        seconds: the longest wait for an answer.

    Attributes:
        is_first: whether no program has used the connection before.

    Raises:
        InvalidArgumentError: it is no socket of a manager that answers.
    """

    def __init__(self, descriptor: int, seconds: float) -> None:
        super().__init__("srun", descriptor, seconds)
        self._unread = b""
        mark = self._mark()
        self.is_first = mark not in (_IS_OPEN, _IS_IN_FENCE)
        if mark == _IS_IN_FENCE:
            raise InvalidArgumentError(
                f"{self.words} cannot be used any more: init() has failed in this task before, or was ended while it "
                f"waited for the others; {_REMEDY}"
            )
        if self.is_first:
            self._open()

    def put(self, key: str, value: str) -> None:
        """As in the base."""
        self._ask("kvs-put", f"key={key};value={value};")

    def get(self, key: str, rank: int) -> str:
        """As in the base."""
        answer = self._ask("kvs-get", f"key={key};")
        if answer.get("found") != "TRUE":
            raise InvalidArgumentError(f"{self.words} has no {key}: not all tasks of the step have called init()")
        return answer["value"]

    def fence(self) -> None:
        """As in the base."""
        self._set_mark(_IS_IN_FENCE)
        self._ask("kvs-fence", "", "a task of the step has ended without init()")
        self._set_mark(_IS_OPEN)

    def tell_node(self, key: str, rank: int) -> None:
        """Have the other tasks on this node know of `key` of this rank, the caller's, without a fence."""
        self._ask("info-putnodeattr", f"key=ciranda-{key}-{rank};value=1;")

    def is_told(self, key: str, rank: int) -> bool:
        """Whether this rank, of this node, has told of `key`. May be called after a fence that did not end in time."""
        self.seconds = _ANSWER_SECONDS
        return self._ask("info-getnodeattr", f"key=ciranda-{key}-{rank};wait=FALSE;").get("found") == "TRUE"

    def _open(self) -> None:
        deadline = time.monotonic() + self.seconds
        line = b""
        with suppress(ConnectionError):
            self.write(_FIRST_LINE)
            while not line.endswith(b"\n") and (received := self.read(deadline)):
                line += received
        found = dict(word.partition("=")[::2] for word in line.decode("ascii", "replace").split())
        if (found.get("cmd"), found.get("rc"), found.get("pmi_version")) != ("response_to_init", "0", "2"):
            said = f"; it answers {line!r}" if line else ""
            raise InvalidArgumentError(f"{self.words} does not speak PMI-2 with this process{said}. {_WHY_CLOSED}")
        self._set_mark(_IS_OPEN)
        self._ask("fullinit", "pmijobid=-1;pmirank=-1;threaded=FALSE;")

    def _ask(self, name: str, rest: str, why: str = _WHY_CLOSED) -> dict[str, str]:
        """Return the answer. `why`: what it means if the manager closes the connection instead."""
        request = f"cmd={name};{rest}"
        answer: dict[str, str] = {}
        deadline = time.monotonic() + self.seconds
        with suppress(ConnectionError):
            self.write(f"{len(request):>{_LENGTH_CHARACTERS}}{request}")
            while True:
                answer = self._message(deadline)
                if answer.get("cmd") in (f"{name}-response", None):
                    break  # another is the late answer to a request that was given up
        if not answer:
            raise InvalidArgumentError(f"srun has closed {self.words}: {why}")
        if answer.get("rc", "0") != "0":
            raise InvalidArgumentError(f"{self.words} refused {name}: {answer.get('errmsg', answer['rc'])}")
        return answer

    def _message(self, deadline: float) -> dict[str, str]:
        """Return the fields of the next message; none from a closed socket."""
        length = self._exactly(_LENGTH_CHARACTERS, deadline).decode("ascii", "replace").strip()
        if not length:
            return {}
        if not length.isdigit() or int(length) > _LONGEST_MESSAGE:
            raise InvalidArgumentError(f"{self.words} does not speak PMI-2: a message begins with {length!r}")
        text = self._exactly(int(length), deadline).decode("utf-8", "replace")
        return dict(field.partition("=")[::2] for field in text.split(";") if field)

    def _exactly(self, n_bytes: int, deadline: float) -> bytes:
        """Return so many bytes; none from a socket that is closed before."""
        while len(self._unread) < n_bytes:
            received = self.read(deadline, n_bytes - len(self._unread))
            if not received:
                return b""
            self._unread += received
        taken, self._unread = self._unread, b""
        return taken

    def _mark(self) -> int:
        with socket.socket(fileno=os.dup(self.descriptor)) as same:
            return same.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY)

    def _set_mark(self, mark: int) -> None:
        with socket.socket(fileno=os.dup(self.descriptor)) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, mark)
