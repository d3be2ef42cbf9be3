"""Two hosts between which somebody changes what they send: relays of their TCP connections, which know the records.

    with tampering.two_hosts() as hosts, Ranks(2, hosts=hosts, env_of=hosts.env_of) as ranks:
        hosts.tamper_with(lambda stream: FlipBit(100) if stream == Stream("control", 0) else None)
        ranks.run(hvd.init)

Each host is a network namespace that has both hosts' addresses. What seems to be the other host is a relay, which
connects to the real one in the other namespace. What it does to a connection begins after the handshake. Needs root.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

import link

PORTS = (40_000, 40_001)  # on which the rank of either host listens
HEADER_BYTES = 28
_CHECKSUM_BYTES = 4  # at the end of a header
_HELLO_BYTES = 80
# The rest of the handshake: from the connecting side, and from the accepting one.
_PROOF_BYTES = 32
_ANSWER_BYTES = 81
_ROLES = {1: "store", 2: "control", 3: "data"}


def mended(record: bytes, number: int) -> bytes:
    """A record with the sums that somebody without a key can compute, as that of its number in its stream."""
    place = struct.pack("<Q", number)
    fields, tag, data = record[:8], record[8 : HEADER_BYTES - _CHECKSUM_BYTES], record[HEADER_BYTES:]
    if not any(tag[4:]):  # that of CIRANDA_WIRE=check
        tag = struct.pack("<I", _crc32c(place + data)) + tag[4:]
    return fields + tag + struct.pack("<I", _crc32c(place + fields + tag)) + data


def _crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


@dataclass(frozen=True)
class Stream:
    """What one side sends on a connection of a kind: "control", "data", or "store", which rank 0's host has."""

    kind: str
    sender: int


class Editor(Protocol):
    """What is done to a stream."""

    n_of_handshake: int
    """How many of the last bytes of the handshake it is given, too."""

    def edit(self, data: bytes) -> bytes | None:
        """What to send instead; None to end the connection in this direction."""


@dataclass
class FlipBit:
    """Changes a bit, counted from the end of the handshake."""

    bit: int
    is_done: bool = False
    n_of_handshake: int = 0
    _n_seen: int = 0

    def edit(self, data: bytes) -> bytes:
        at = self.bit // 8 - self._n_seen
        self._n_seen += len(data)
        if not 0 <= at < len(data):
            return data
        self.is_done = True
        return data[:at] + bytes([data[at] ^ 1 << self.bit % 8]) + data[at + 1 :]


@dataclass
class Count:
    """Changes nothing."""

    n_bytes: int = 0
    n_of_handshake: int = 0

    def edit(self, data: bytes) -> bytes:
        self.n_bytes += len(data)
        return data


@dataclass
class HoldBack:
    """Takes all, and passes nothing on."""

    n_of_handshake: int = 0

    def edit(self, data: bytes) -> bytes:
        return b""


@dataclass
class Delay:
    """Passes all on, later."""

    seconds: float
    n_of_handshake: int = 0

    def edit(self, data: bytes) -> bytes:
        time.sleep(self.seconds)
        return data


@dataclass
class EditRecords:
    """Gives each record with its number to a function, which returns what to send instead.

    Number 0 is the first record, or the first of a size.
    """

    function: Callable[[int, bytes], bytes | None]
    n_bytes: int | None = None
    is_done: bool = False
    n_of_handshake: int = 0
    _n_records: int = 0
    _begun: bytes = b""

    def edit(self, data: bytes) -> bytes | None:
        self._begun += data
        out = b""
        while len(self._begun) >= HEADER_BYTES:
            (length,) = struct.unpack_from("<I", self._begun, 4)
            end = HEADER_BYTES + (length & 0x3FFFFFFF)
            if len(self._begun) < end:
                break
            record, self._begun = self._begun[:end], self._begun[end:]
            is_before = self._n_records == 0 and self.n_bytes not in (None, len(record))
            edited = record if is_before else self.function(self._n_records, record)
            self._n_records += not is_before
            self.is_done = self.is_done or edited != record
            if edited is None:
                return None
            out += edited
        return out


Tamper = Callable[[Stream], Editor | None]


@dataclass
class Hosts(link.Hosts):
    """The hosts, and what is done to the streams between them."""

    tamper: Tamper = field(default=lambda stream: None)
    listeners: list[socket.socket] = field(default_factory=list)

    def tamper_with(self, tamper: Tamper) -> None:
        """What is done to connections that are made from now on."""
        self.tamper = tamper

    def editor(self, stream: Stream) -> Editor | None:
        return self.tamper(stream) if stream.kind else None

    def env_of(self, rank: int) -> dict[str, str]:
        return {"CIRANDA_INTERFACE": link.address(host=rank), "CIRANDA_PORT_RANGE": f"{PORTS[rank]}-{PORTS[rank]}"}

    def on_first(self, make: Callable[[], link.T]) -> link.T:
        """As of all hosts; a store that listens on the first is reached from the second through a relay."""
        made = self.on(0, make)
        port = getattr(made, "port", None)
        if port is not None:
            self.listeners.append(_relay(self, towards=0, port=port))
        return made


@contextmanager
def two_hosts() -> Iterator[Hosts]:
    """Make them. REQUIRES: link.why_not() is None."""
    with ExitStack() as stack:
        made = Hosts([link.start_host(stack) for _ in range(2)], [])
        for host in range(2):
            for each in range(2):
                command = ["ip", "address", "add", f"{link.address(host=each)}/32", "dev", "lo"]
                link.run(*made.enter(host), *command)
        made.listeners = [_relay(made, towards=host, port=port) for host, port in enumerate(PORTS)]
        yield made
        for listener in made.listeners:
            listener.shutdown(socket.SHUT_RDWR)  # ends the thread that accepts, which closes it


def _relay(hosts: Hosts, towards: int, port: int) -> socket.socket:
    """Stand for a port of a host in the other host's network. Returns what listens there."""
    address = (link.address(host=towards), port)
    listener = hosts.on(1 - towards, lambda: socket.create_server(address))

    def serve() -> None:
        with listener, suppress(OSError):
            while True:
                near, _ = listener.accept()
                threading.Thread(target=carry, args=(near,), daemon=True).start()

    def connect() -> socket.socket:
        return socket.create_connection(address, source_address=(link.address(host=1 - towards), 0))

    def carry(near: socket.socket) -> None:
        with near, suppress(OSError), hosts.on(towards, connect) as far:
            hello = _exactly(near, _HELLO_BYTES)
            kind = _ROLES[hello[10]] if len(hello) == _HELLO_BYTES else ""
            far.sendall(hello)
            there = (near, far, _PROOF_BYTES, hosts.editor(Stream(kind, 1 - towards)))
            back = (far, near, _ANSWER_BYTES, hosts.editor(Stream(kind, towards)))
            thread = threading.Thread(target=_pump, args=there, daemon=True)
            thread.start()
            _pump(*back)
            thread.join()

    threading.Thread(target=serve, daemon=True).start()
    return listener


def _exactly(source: socket.socket, n_bytes: int) -> bytes:
    data = b""
    with suppress(OSError):
        while len(data) < n_bytes and (more := source.recv(n_bytes - len(data))):
            data += more
    return data


def _pump(source: socket.socket, sink: socket.socket, n_plain: int, editor: Editor | None) -> None:
    """Carry one direction to its end; the first bytes as they are."""
    n_plain -= editor.n_of_handshake if editor else 0
    with suppress(OSError):
        for connection in (source, sink):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := source.recv(1 << 20):
            plain, data = data[:n_plain], data[n_plain:]
            n_plain -= len(plain)
            edited = editor.edit(data) if editor else data
            sink.sendall(plain + (edited or b""))
            if edited is None:
                break
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
