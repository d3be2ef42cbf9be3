"""Strangers who call at every port of a job's processes on a host, from its start to its end, and prove nothing.

Each says something else: nothing at all, half of a first message, what is no message, and a first message as Ciranda's
processes send it, with a proof by another secret. Those that say nothing stay connected.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ciranda.launch.handshake import ConnectingHandshake, Terms

_MOST_KEPT = 64
_GUARD_SECONDS = 120.0


def listening(holder: int) -> list[str]:
    """The ports of processes with Ciranda in the network namespace of a process. An engine's own have ports too."""
    inodes = {}
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{holder}/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                inodes[f"socket:[{words[9]}]"] = str(int(words[1].rpartition(":")[2], 16))
    found = set()
    for process in Path("/proc").iterdir():
        open_here = [each for each in _open_files(process) if each in inodes] if process.name.isdigit() else []
        if open_here and _has_ciranda(process):
            found |= {inodes[each] for each in open_here}
    return sorted(found)


def _open_files(process: Path) -> list[str]:
    try:
        return [os.readlink(each) for each in (process / "fd").iterdir()]
    except OSError:
        return []


def _has_ciranda(process: Path) -> bool:
    try:
        is_python = Path(os.readlink(process / "exe")).name.startswith("python")
        return is_python and "/ciranda/" in (process / "maps").read_text()
    except OSError:
        return False


@dataclass(frozen=True)
class Report:
    """What they have done, and met, so far.

    Attributes:
        n_ports: at the last round.
        n_rounds: in which there was a port, and each was called.
        n_called: connections, with those that are kept.
        n_dropped: of those that are kept, by the other side.
        heard: the first bytes of all that was answered, as hexadecimal numbers.
    """

    n_ports: int = 0
    n_rounds: int = 0
    n_called: int = 0
    n_dropped: int = 0
    heard: tuple[str, ...] = ()


class Strangers:
    """A process of them; it is told where to write, and to end by a file."""

    def __init__(self, folder: Path) -> None:
        self._said = folder / "strangers"

    def report(self) -> Report:
        """The last one."""
        try:
            return Report(**{**(found := json.loads(self._said.read_text())), "heard": tuple(found["heard"])})
        except OSError:
            return Report()

    def until(self, is_so: Callable[[Report], bool]) -> None:
        """Wait until the report is so."""
        deadline = time.monotonic() + _GUARD_SECONDS
        while not is_so(self.report()):
            assert time.monotonic() < deadline, self.report()
            time.sleep(0.05)

    def until_called_again(self) -> None:
        """Wait until two more rounds have ended, one of which began after this, and some who wait were dropped."""
        before = self.report()
        self.until(lambda now: now.n_rounds > before.n_rounds + 1 and now.n_dropped > 0)


@contextmanager
def strangers(enter: Sequence[str], holder: int, address: str, folder: Path) -> Iterator[Strangers]:
    """Have them call at the host with that network namespace and address; `enter` runs them on another."""
    command = [*enter, sys.executable, __file__, str(holder), address, str(folder / "strangers")]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}) as process:
        try:
            yield Strangers(folder)
        finally:
            process.terminate()


class _Callers:
    def __init__(self, address: str) -> None:
        self._address = address
        self._kept: list[socket.socket] = []
        self.n_rounds = self.n_called = self.n_dropped = 0
        self.heard: set[str] = set()

    def call(self, ports: list[str]) -> None:
        """A round: all kinds of them at every port."""
        shake = ConnectingHandshake(Terms(os.urandom(32), "job", 2), 1, os.urandom(32))
        for port in ports:
            for pieces in ([b"GET / HTTP/1.0\r\n\r\n"], [os.urandom(4096)], [shake.begin(), os.urandom(32)]):
                self._say(port, pieces)
            for first in (b"", shake.begin()[:20]):
                self._keep(port, first)
        self.n_rounds += bool(ports)

    def look(self) -> None:
        """Count those whom the other side has dropped."""
        for each in select.select(self._kept, [], [], 0)[0]:
            try:
                heard = each.recv(4096)
            except OSError:
                heard = b""
            if heard:
                self.heard.add(heard[:8].hex())
            else:
                self.n_dropped += 1
                self._kept.remove(each)
                each.close()

    def _say(self, port: str, pieces: list[bytes]) -> None:
        try:
            with socket.create_connection((self._address, int(port)), 5) as connection:
                self.n_called += 1
                for piece in pieces:
                    connection.settimeout(0.2)
                    connection.sendall(piece)
                    if heard := connection.recv(4096):
                        self.heard.add(heard[:8].hex())
        except OSError:
            pass

    def _keep(self, port: str, first: bytes) -> None:
        if len(self._kept) < _MOST_KEPT:
            try:
                connection = socket.create_connection((self._address, int(port)), 5)
                connection.sendall(first)
            except OSError:
                return
            self._kept.append(connection)
            self.n_called += 1


def _main(holder: str, address: str, said: str) -> None:
    callers = _Callers(address)
    while True:
        ports = listening(int(holder))
        callers.call(ports)
        callers.look()
        report = {"n_ports": len(ports), "heard": sorted(callers.heard)}
        report |= {name: getattr(callers, name) for name in ("n_rounds", "n_called", "n_dropped")}
        Path(f"{said}.new").write_text(json.dumps(report))
        os.replace(f"{said}.new", said)
        time.sleep(0.1)


if __name__ == "__main__":
    _main(*sys.argv[1:])
