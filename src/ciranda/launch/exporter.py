"""The process that shows a host's ranks to Prometheus: over HTTP, in a file for node_exporter, or both.

It is a child of the agent, forked once all ranks run, which reads their pages as the agent does: neither a rank nor the
agent waits for who asks. The series of a rank end with it. In an elastic job processes follow one another at a page,
and it is the page that says which rank, of which process, it is of. Standard library only.
"""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ciranda.launch import open_metrics
from ciranda.launch.errors import LaunchError
from ciranda.launch.page import RankPage
from ciranda.launch.process_signs import Signs, start_of
from ciranda.launch.processes import END_SIGNALS, die_with_parent

if TYPE_CHECKING:
    from http.server import HTTPServer

LOOPBACK = "127.0.0.1"
WRITE_SECONDS = 5.0  # between two versions of the file
_CLIENT_SECONDS = 2.0  # for a client to send its request, and to take the answer
_GIVE_WAY = signal.SIGUSR1


def parse_address(text: str) -> tuple[str, int]:
    """``ADDR:PORT``, ``:PORT`` or ``PORT``, the latter two on the loopback interface; LaunchError for another text."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or LOOPBACK
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise LaunchError(f"--metrics {text!r}: write ADDR:PORT, or PORT", exit_code=2)
    return host, int(port)


def listen(address: str) -> socket.socket:
    """A socket for `Exporter` at ``ADDR:PORT``; LaunchError, or OSError for an unknown name, if there can be none."""
    host, port = parse_address(address)
    family, kind, number, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, number)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen()
    except OSError as error:
        listener.close()
        raise LaunchError(f"cannot listen at {address}: {error.strerror}") from None
    return listener


def make_folder(path: str) -> None:
    """Make the folder for `Exporter`'s file, unless it is there; LaunchError if nothing can be written to it."""
    try:
        os.makedirs(path, exist_ok=True)
        with tempfile.TemporaryFile(dir=path, buffering=0) as probe:
            probe.write(b"\n")
    except OSError as error:
        raise LaunchError(f"cannot write to {path}: {error.strerror}") from None


class Exporter:
    """The running process, a child of the agent, which reaps it.

    Attributes:
        pid: its number.
    """

    def __init__(
        self,
        pages: Mapping[int, RankPage],
        pids: Mapping[int, int] | None,
        labels: Mapping[str, str],
        listener: socket.socket | None,
        folder: str,
    ) -> None:
        """Start it; OSError if there is no process left.

        Args:
            pages, pids: of each rank that runs; an elastic job has pages by place, and no processes that stay.
            labels: on every series.
            listener: from `listen`; None for no HTTP.
            folder: where to write the file; empty for none.
        """
        self._file = _File(folder, labels) if folder else None
        agent = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
        try:
            self.pid = os.fork()
            if self.pid == 0:
                try:
                    shown = _PresentRanks(pages) if pids is None else _Ranks(pages, pids)
                    _become_exporter(
                        lambda: open_metrics.to_text(shown.counters(), labels), listener, self._file, agent
                    )
                finally:
                    os._exit(0)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)

    def end(self) -> None:
        """Ask it to remove its file and end. REQUIRES: it has not been reaped."""
        os.kill(self.pid, signal.SIGTERM)

    def give_way(self) -> None:
        """Ask it to end and leave its file to another. REQUIRES: it has not been reaped."""
        os.kill(self.pid, _GIVE_WAY)

    def clean_up(self) -> None:
        """Remove its file, if it was killed before it could."""
        if self._file is not None:
            self._file.remove(self.pid)


class _Ranks:
    """Those of a job whose processes stay."""

    def __init__(self, pages: Mapping[int, RankPage], pids: Mapping[int, int]) -> None:
        self._pages = pages
        self._pids = pids
        self._signs = Signs()
        self._began = {rank: start_of(pid) for rank, pid in pids.items()}

    def counters(self) -> list[dict[str, Any]]:
        """Of each rank that runs."""
        return [self._of(rank) for rank in sorted(self._pids) if self._runs(rank)]

    def _runs(self, rank: int) -> bool:
        return start_of(self._pids[rank]) == self._began[rank] != ""

    def _of(self, rank: int) -> dict[str, Any]:
        counters = self._pages[rank].counters()
        return {**counters, **self._signs.spent(counters.get("pid", self._pids[rank])), "rank": rank, "up": 1}


class _PresentRanks:
    """Those of an elastic job that have joined a world. While the next is formed, two pages may be of one number."""

    def __init__(self, pages: Mapping[int, RankPage]) -> None:
        self._pages = pages
        self._signs = Signs()

    def counters(self) -> list[dict[str, Any]]:
        """Of each rank, in the youngest of its worlds."""
        found: dict[int, dict[str, Any]] = {}
        for counters in sorted(filter(None, map(RankPage.counters, self._pages.values())), key=_age):
            if counters["rank"] not in found and start_of(counters["pid"]):
                found[counters["rank"]] = {**counters, **self._signs.spent(counters["pid"]), "up": 1}
        return [found[rank] for rank in sorted(found)]


def _age(counters: Mapping[str, Any]) -> float:
    return float(counters["seconds"])


def _become_exporter(text: Callable[[], str], listener: socket.socket | None, file: _File | None, agent: int) -> None:
    for number in (signal.SIGCHLD, *END_SIGNALS):
        signal.signal(number, signal.SIG_DFL)
    asked = _Asked()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)
    os.closerange(0, 3)  # the agent's own: whoever reads them waits for their end
    for _ in range(3):
        os.open(os.devnull, os.O_RDWR)
    with suppress(SystemExit):
        die_with_parent(signal.SIGTERM, agent)
        _serve(text, listener, file, asked)
    if file is not None and _GIVE_WAY not in asked.signals:
        file.remove(os.getpid())


class _Asked:
    """What the agent has asked of this process: SIGTERM, to end; `_GIVE_WAY`, to end once it has answered.

    It is noted, and wakes who selects ``fd``: Python drops what a signal's handler raises amid a finalizer or a
    collection of garbage, and does not look for signals between its last look and a system call.
    """

    def __init__(self) -> None:
        self.signals: set[int] = set()
        self.fd, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, _GIVE_WAY):
            signal.signal(number, self._note)

    def _note(self, number: int, _frame: object) -> None:
        self.signals.add(number)
        if number == signal.SIGTERM:
            raise SystemExit  # a client that is slow is not waited for


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """What is in it is ended before this process ends, so that nobody reads half of it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _serve(text: Callable[[], str], listener: socket.socket | None, file: _File | None, asked: _Asked) -> None:
    server = _server(listener, text) if listener is not None else None
    poll = select.poll()
    poll.register(asked.fd, select.POLLIN)
    if listener is not None:
        poll.register(listener, select.POLLIN)
    due = time.monotonic()
    while not asked.signals:
        if file is not None and time.monotonic() >= due:
            file.write(text())
            due = time.monotonic() + WRITE_SECONDS
        patience = max(0.0, due - time.monotonic()) if file is not None else None
        poll.poll(None if patience is None else math.ceil(1000 * patience))
        if server is not None:
            server.handle_request()  # if there is one: it does not wait


def _server(listener: socket.socket, text: Callable[[], str]) -> HTTPServer:
    from http.server import BaseHTTPRequestHandler, HTTPServer  # the command line, which imports this file, is fast

    class Handler(BaseHTTPRequestHandler):
        timeout = _CLIENT_SECONDS

        def do_GET(self) -> None:
            if self.path.partition("?")[0] not in ("/metrics", "/"):
                self.send_error(404)
                return
            body = text().encode()
            with _uninterrupted():
                self.send_response(200)
                self.send_header("Content-Type", open_metrics.CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("", 0), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    listener.setblocking(False)  # `handle_request` does not wait, nor does `accept` if another let the client in
    return server


class _File:
    """``ciranda-JOB-HOST.prom`` in a folder, always whole: written beside it, and renamed.

    Beside it each process has a name of its own, as one that gives way may still write.
    """

    def __init__(self, folder: str, labels: Mapping[str, str]) -> None:
        self._path = os.path.join(folder, f"ciranda-{labels['job']}-{labels['host']}.prom")

    def write(self, text: str) -> None:
        beside = self._beside(os.getpid())
        with suppress(OSError), _uninterrupted():  # the disk is full, or the folder is gone: the next time may do
            with open(beside, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(beside, self._path)

    def remove(self, pid: int) -> None:
        """Remove it, and what the process has left beside it."""
        for path in (self._path, self._beside(pid)):
            with suppress(OSError):
                os.unlink(path)

    def _beside(self, pid: int) -> str:
        return f"{self._path}.{pid}.tmp"  # node_exporter reads *.prom
