"""A connection between an agent and a launcher that have proved to each other that they have the secret."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from ciranda.launch import protocol
from ciranda.launch.protocol import Message
from ciranda.launch.sealing import Opener, Sealer

# Before and after a job, when nobody looks for silence (silence.py), a host that is gone is noticed after 30 s.
_IDLE_SECONDS = 5
_PROBES = 6


@dataclass
class Channel:
    """The socket, and what seals what is sent and opens what comes."""

    socket: socket.socket
    sealer: Sealer
    opener: Opener

    def __post_init__(self) -> None:
        options = {
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 1,
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): _IDLE_SECONDS,
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): _IDLE_SECONDS,
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT): _PROBES,
            (socket.IPPROTO_TCP, socket.TCP_NODELAY): 1,
        }
        for (level, name), value in options.items():
            self.socket.setsockopt(level, name, value)

    def send(self, message: Message, seconds: float) -> None:
        """Send a message, all of it, or raise OSError."""
        self.socket.settimeout(seconds)
        self.socket.sendall(self.sealer.seal(protocol.encode(message)))
