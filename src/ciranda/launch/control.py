"""The own jobs of a user on this machine: their launchers answer at a socket each, in a folder of that user's alone.

A client sends a line, such as ``jobs``, ``stacks`` or ``totals``, and gets a JSON object. Who may open the socket may
also signal the launcher and its ranks, so that nothing more is asked of a client.
"""

from __future__ import annotations

import json
import os
import selectors
import shlex
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ciranda.launch.errors import LaunchError

_END = ".sock"
_MOST_CLIENTS = 16
_MOST_LINE_BYTES = 64
_ANSWER_SECONDS = 15.0

#: Given the function to call with the answer, now or later.
Answer = Callable[[Callable[[dict[str, Any]], None]], None]


def folder() -> Path:
    """Where the sockets are."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime, "ciranda") if runtime else Path("/tmp", f"ciranda-{os.getuid()}")


def _is_own(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


class _Client:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.line = b""
        self.is_asking = True
        self.reply = b""


class Control:
    """A launcher's end, within its event loop. Without a folder that is the user's alone there is none to ask."""

    def __init__(self, job_id: str, answers: dict[str, Answer]) -> None:
        self._answers = answers
        self._clients: list[_Client] = []
        self._socket: socket.socket | None = None
        self._path = folder() / f"{job_id}{_END}"
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            if _is_own(self._path.parent):
                listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                listener.setblocking(False)
                self._socket = listener
                listener.bind(str(self._path))
                listener.listen(_MOST_CLIENTS)

    def watch(self, selector: selectors.BaseSelector) -> None:
        """Register what is to be waited for now; the keys' data are functions to call."""
        if self._socket is not None and len(self._clients) < _MOST_CLIENTS:
            selector.register(self._socket, selectors.EVENT_READ, self._accept)
        for client in self._clients:
            if client.is_asking:
                selector.register(client.connection, selectors.EVENT_READ, lambda client=client: self._read(client))
            elif client.reply:
                selector.register(client.connection, selectors.EVENT_WRITE, lambda client=client: self._write(client))

    def _accept(self) -> None:
        assert self._socket is not None
        with suppress(OSError):
            connection, _ = self._socket.accept()
            connection.setblocking(False)
            self._clients.append(_Client(connection))

    def _read(self, client: _Client) -> None:
        try:
            data = client.connection.recv(_MOST_LINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        client.line += data
        question, newline, _ = client.line.partition(b"\n")
        if newline and (answer := self._answers.get(question.decode("ascii", "replace"))):
            client.is_asking = False
            answer(lambda reply: self._put(client, reply))
        elif newline or not data or len(client.line) > _MOST_LINE_BYTES:
            self._drop(client)

    def _put(self, client: _Client, reply: dict[str, Any]) -> None:
        client.reply = json.dumps(reply).encode("ascii") + b"\n"

    def _write(self, client: _Client) -> None:
        try:
            n_sent = client.connection.send(client.reply)
        except BlockingIOError:
            return
        except OSError:
            n_sent = len(client.reply)
        client.reply = client.reply[n_sent:]
        if not client.reply:
            self._drop(client)

    def _drop(self, client: _Client) -> None:
        client.connection.close()
        self._clients.remove(client)

    def close(self) -> None:
        """Answer nobody any more."""
        for client in list(self._clients):
            self._drop(client)
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            with suppress(OSError):
                self._path.unlink()


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    """The user's jobs whose launchers run here: identifier, and what the launcher says of it."""
    if not _is_own(folder()):
        return
    for path in sorted(folder().glob(f"*{_END}")):
        try:
            yield path.name.removesuffix(_END), _ask(path, "jobs")
        except ConnectionRefusedError:  # left by a launcher that was killed
            path.unlink(missing_ok=True)
        except (OSError, ValueError):  # it is about to end
            continue


def ask(job: str | None, question: str) -> dict[str, Any]:
    """What the launcher of a job answers. ``job``: the beginning of its identifier; None for the only one.

    Raises:
        LaunchError: there is no such job, or more than one; or it does not answer.
    """
    found = {name: about for name, about in jobs() if name.startswith(job or "")}
    if len(found) != 1:
        whose = f"of yours whose identifier begins with {job!r}" if job else "of yours"
        if not found:
            raise LaunchError(f"no job {whose} runs here; see 'ciranda jobs'", exit_code=2)
        which = "".join(f"\n  {name}  {shlex.join(about['command'])}" for name, about in found.items())
        raise LaunchError(f"{len(found)} jobs {whose} run here; say which, by its identifier:{which}", exit_code=2)
    (name,) = found
    try:
        answer = _ask(folder() / f"{name}{_END}", question)
    except (OSError, ValueError) as error:
        raise LaunchError(f"job {name} does not answer: {error}") from None
    return answer


def _ask(path: Path, question: str) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        connection.connect(str(path))
        connection.sendall(f"{question}\n".encode("ascii"))
        with connection.makefile("rb") as file:
            answer = json.loads(file.readline())
    if not isinstance(answer, dict):
        raise ValueError("no answer")
    return answer
