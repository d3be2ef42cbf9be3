"""Whether the host at the other end of a connection is cut off: it has acknowledged none of what was sent to it.

The rule is the engine's (cpp/transport/silence.hpp). Whoever looks also sends a *beat* each time, a message without
meaning, so that there is something to acknowledge. The kernel acknowledges in place of a process that is stopped or
slow: a launcher that Ctrl-Z has stopped is waited for, and no one listens for beats. Standard library only.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ciranda.launch.protocol import Message

BEAT: Message = {"t": "beat"}
NAME = "CIRANDA_LINK_TIMEOUT"
DEFAULT_SECONDS = 3.0
LATER_THAN_RANKS = 1.25  # times what the ranks wait, which say what they were about to do, a launcher waits for agents
_LOOKS = 8  # within the limit
_LOOKS_IN_VAIN = 3  # of data; of probes, which ask for room, all of them
_TCP_INFO_BYTES = 148

# Of the kernel's answer about a connection (struct tcp_info, inet_diag_req_v2, inet_diag_sockid, nlattr).
_RETRANSMITS, _PROBES, _LAST_ACK_RECEIVED, _UNSENT = 2, 3, 56, 144
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST = 4, 20, 1
_INET_DIAG_INFO = 2
_HEADER_BYTES, _DIAG_MESSAGE_BYTES, _ATTRIBUTE_BYTES = 16, 72, 4

# Of a line of /proc/net/tcp: where the inode is, and states.
_INODE, _LISTENS, _IS_ESTABLISHED = 9, "0A", "01"

Look = Callable[[], bytes]
Address = tuple[str, int]


def limit_of(env: Mapping[str, str]) -> float:
    """The link timeout that the variables set, in seconds; what is no number the engine refuses, in its own words."""
    try:
        return min(max(1.0, float(env.get(NAME, DEFAULT_SECONDS))), 3600.0)
    except ValueError:
        return DEFAULT_SECONDS


def cut_off(limit_seconds: float) -> str:
    """What is wrong with a host that has been silent for too long: the rest of a sentence that begins with it."""
    return f"has acknowledged nothing for {limit_seconds:g} s ({NAME}), so it is down, or a link to it is cut"


class Silence:
    """Of one connection. Call is_too_long() at ``deadline``, and send a beat after it.

    Attributes:
        limit_seconds: from the last acknowledgement.
        deadline: when to look next.
    """

    def __init__(self, look: Look, limit_seconds: float) -> None:
        """``look`` returns the kernel's tcp_info of the connection, b"" if there is none."""
        self.limit_seconds = limit_seconds
        self._look = look
        self._looked_at = time.monotonic()
        self._in_vain_seconds: float | None = None
        self.deadline = self._looked_at

    def is_too_long(self) -> bool:
        """Whether the host is cut off. A look that comes late counts as if it had come in time."""
        now = time.monotonic()
        period = self.limit_seconds / _LOOKS
        since_look = min(now - self._looked_at, 2 * period)
        self._looked_at, self.deadline = now, now + period
        info = self._look()
        n_looks = _looks_in_vain(info)
        if n_looks == 0:
            self._in_vain_seconds = None
            return False
        self._in_vain_seconds = 0.0 if self._in_vain_seconds is None else self._in_vain_seconds + since_look
        (last_ack_ms,) = struct.unpack_from("=I", info, _LAST_ACK_RECEIVED)
        is_old = last_ack_ms / 1000 >= (_LOOKS - 1) * period
        return is_old and self._in_vain_seconds >= n_looks * period


def _looks_in_vain(info: bytes) -> int:
    """How many looks must have seen as much, if something was sent in vain; else 0."""
    if len(info) < _TCP_INFO_BYTES:
        return 0
    if info[_RETRANSMITS] > 0:
        return _LOOKS_IN_VAIN
    (n_unsent,) = struct.unpack_from("=I", info, _UNSENT)
    return _LOOKS if info[_PROBES] > 0 and n_unsent > 0 else 0


def of_socket(connection: socket.socket) -> Look:
    """A look at a connection of this process."""

    def look() -> bytes:
        try:
            return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        except OSError:
            return b""

    return look


def of_connections(texts: Iterable[str]) -> Look | None:
    """A look at connections of this host as SSH_CONNECTION has them: the other end's address and port, then its own.

    They belong to other processes, but the kernel tells everybody of this host about them. The best counts: others may
    be of those who asked something and are gone. None if no text is a connection.
    """
    requests = [request for text in texts if (request := _request_of(text)) is not None]
    return (lambda: _best_of(requests)) if requests else None


def _request_of(text: str) -> bytes | None:
    words = text.split()
    if len(words) != 4 or not words[1].isdigit() or not words[3].isdigit():
        return None
    try:
        return _request((words[2], int(words[3])), (words[0], int(words[1])))
    except (OSError, struct.error):
        return None


def _best_of(requests: Iterable[bytes]) -> bytes:
    return min((info for request in requests if (info := _answer(request))), key=_looks_in_vain, default=b"")


class _OfProcess:
    """A look at what a process of this host has accepted. Its connections are looked for when none is known."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._requests: list[bytes] = []

    def __call__(self) -> bytes:
        if info := _best_of(self._requests):
            return info
        self._requests = [_request(own, other) for own, other in accepted_by(self._pid)]
        return _best_of(self._requests)


def of_process(pid: int) -> Look:
    """A look at the connections that a child of this process has accepted, as srun has its node's; the best counts."""
    return _OfProcess(pid)


def accepted_by(pid: int) -> list[tuple[Address, Address]]:
    """Return both ends of the established connections of a process at the ports on which it listens, its own first."""
    try:
        files = {os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()}
        lines = [line for name in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()]
    except OSError:
        return []
    rows = [words for words in map(str.split, lines) if len(words) > _INODE and f"socket:[{words[_INODE]}]" in files]
    ports = {words[1].rpartition(":")[2] for words in rows if words[3] == _LISTENS}
    found = [words for words in rows if words[3] == _IS_ESTABLISHED and words[1].rpartition(":")[2] in ports]
    return [(_end(words[1]), _end(words[2])) for words in found]


def seen_from_there(connections: Iterable[tuple[Address, Address]]) -> list[str]:
    """What of_connections() takes on the other end's host, of connections with their own end first."""
    return [f"{own[0]} {own[1]} {other[0]} {other[1]}" for own, other in connections]


def _end(text: str) -> Address:
    """As /proc/net/tcp has it: words of the machine's byte order, and a port."""
    words, _, port = text.partition(":")
    raw = b"".join(struct.pack("=I", int(words[at : at + 8], 16)) for at in range(0, len(words), 8))
    return str(ipaddress.ip_address(raw)), int(port, 16)


def _answer(request: bytes) -> bytes:
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(1.0)
            kernel.sendto(request, (0, 0))
            return _info_in(kernel.recv(8192))
    except OSError:
        return b""


def _request(own: Address, other: Address) -> bytes:
    family = socket.AF_INET6 if ":" in own[0] else socket.AF_INET
    addresses = b"".join(socket.inet_pton(family, address).ljust(16, b"\0") for address, _ in (own, other))
    any_state = any_cookie = 0xFFFFFFFF
    body = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 1 << (_INET_DIAG_INFO - 1), 0, any_state)
    body += struct.pack("!HH", own[1], other[1]) + addresses + struct.pack("=III", 0, any_cookie, any_cookie)
    return struct.pack("=IHHII", _HEADER_BYTES + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0) + body


def _info_in(answer: bytes) -> bytes:
    if len(answer) < _HEADER_BYTES or struct.unpack_from("=H", answer, 4)[0] != _SOCK_DIAG_BY_FAMILY:
        return b""
    at = _HEADER_BYTES + _DIAG_MESSAGE_BYTES
    while at + _ATTRIBUTE_BYTES <= len(answer):
        n_bytes, kind = struct.unpack_from("=HH", answer, at)
        if kind == _INET_DIAG_INFO:
            return answer[at + _ATTRIBUTE_BYTES : at + n_bytes]
        at += max(_ATTRIBUTE_BYTES, (n_bytes + 3) & ~3)
    return b""
