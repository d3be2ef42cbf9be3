"""Two hosts and the wires between them, which take their time, lose packets, and can be cut.

Each host is a network namespace with nothing in it but its ends of the wires; a wire is a relay
(benchmarks/cpp/relay.cc). Nothing of this machine's network is touched. Needs root, /dev/net/tun and a C++ compiler.
Everything goes when the context ends.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_SOURCE = Path(__file__).parents[2] / "benchmarks" / "cpp" / "relay.cc"


@functools.cache
def why_not() -> str | None:
    """Why there can be no wires here, or None if there can."""
    if os.geteuid() != 0:
        return "needs root to make network namespaces"
    for tool in ("ip", "unshare", "nsenter", "c++"):
        if shutil.which(tool) is None:
            return f"needs the program {tool}"
    if not Path("/dev/net/tun").exists():
        return "needs /dev/net/tun"
    command = ["unshare", "--net", "ip", "tuntap", "add", "tun0", "mode", "tun"]
    tried = subprocess.run(command, capture_output=True, check=False)
    return None if tried.returncode == 0 else f"may not make interfaces: {tried.stderr.decode().strip()}"


@dataclass
class Hosts:
    """The first process of either host, and the relays between them."""

    holders: list[int]
    relays: list[subprocess.Popen[bytes]]

    def enter(self, host: int) -> list[str]:
        """What stands in front of a command that is to run on a host."""
        return ["nsenter", "--net", "--target", str(self.holders[host])]

    @property
    def interfaces(self) -> str:
        return ",".join(f"wire{number}" for number in range(len(self.relays)))

    def limit_received(self, n_bytes: int) -> None:
        """What connections that are made from now on take in for a process that does not read."""
        for host in range(len(self.holders)):
            write = f"echo 4096 {n_bytes} {n_bytes} > /proc/sys/net/ipv4/tcp_rmem"
            run(*self.enter(host), "sh", "-c", write)

    def cut(self, wire: int) -> None:
        """Let nothing pass any more. Nobody is told."""
        self.relays[wire].send_signal(signal.SIGSTOP)

    def on_first(self, make: Callable[[], T]) -> T:
        """Call a function with the first host's network: what it listens on is there."""
        return self.on(0, make)

    def on(self, host: int, make: Callable[[], T]) -> T:
        """Call a function with a host's network: sockets that it makes are there."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/thread-self/ns/net") as here, open(f"/proc/{self.holders[host]}/ns/net") as there:
            assert libc.setns(there.fileno(), 0) == 0
            try:
                return make()
            finally:
                assert libc.setns(here.fileno(), 0) == 0


def address(wire: int = 0, host: int = 0) -> str:
    return f"10.92.{wire}.{1 + host}"


@contextmanager
def two_hosts(n_wires: int = 1, delay_ms: float = 0.0, loss: float = 0.0) -> Iterator[Hosts]:
    """Make them. REQUIRES: why_not() is None."""
    with ExitStack() as stack:
        program = str(Path(_built().name) / "relay")
        made = Hosts([start_host(stack) for _ in range(2)], [])
        for wire in range(n_wires):
            character = ["--delay-us", str(round(1000 * delay_ms)), "--loss", str(loss), "--seed", str(7 + 2 * wire)]
            command = [program, *map(str, made.holders), "--name", f"wire{wire}", *character]
            made.relays.append(_start(stack, command))
            for host in range(2):
                run(*made.enter(host), "ip", "address", "add", f"{address(wire, host)}/24", "dev", f"wire{wire}")
                run(*made.enter(host), "ip", "link", "set", f"wire{wire}", "up")
        yield made


@functools.cache
def _built() -> tempfile.TemporaryDirectory[str]:
    """A folder with the relay, compiled once; it goes with this process."""
    folder = tempfile.TemporaryDirectory(prefix="ciranda-link-")
    run("c++", "-std=c++20", "-O2", "-o", str(Path(folder.name) / "relay"), str(_SOURCE))
    return folder


def start_host(stack: ExitStack) -> int:
    holder = _start(stack, ["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"])
    run("nsenter", "--net", "--target", str(holder.pid), "ip", "link", "set", "lo", "up")
    return holder.pid


def _start(stack: ExitStack, command: list[str]) -> subprocess.Popen[bytes]:
    """Start a process that says with a line that it is there, and ends with the context."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    stack.callback(process.stdout.close)
    stack.callback(process.wait)
    stack.callback(process.kill)
    assert process.stdout.readline(), f"{command} did not start"
    return process


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
