"""Tells the rendezvous store that a rank will never come: who waits for it in init(), or comes later, fails at once.

The launcher speaks for the rank, as the rank's engine would if it could not join: this is the connecting side of
cpp/membership/handshake.hpp, and the request of cpp/membership/store_messages.hpp. Standard library only.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
from dataclasses import dataclass, field

from ciranda.launch.errors import ProtocolError

_SECONDS = 2.0  # for each step; the store is this process's own
_MAGIC = b"CIRANDA\x01"
_VERSION = 4
_STORE_ROLE = 1
_HELLO = struct.Struct("<8sHBBQIII16s32s")
_CHALLENGE = struct.Struct("<8sQ32s32s")
_ADMITTED = b"\x06"
_EXCHANGE = 1
_FIRST_WORLD = b"epoch 0"
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class Rendezvous:
    """The store of a job's ranks: ``address`` and ``port`` are where this process reaches it."""

    address: str
    port: int
    job: str
    size: int
    secret: bytes = field(repr=False)

    def withdraw(self, rank: int, why: str) -> None:
        """Say that ``rank`` is never in the first world.

        Raises:
            OSError: the store cannot be reached.
            ProtocolError: it does not answer as one.
        """
        with socket.create_connection((self.address, self.port), _SECONDS) as connection:
            self._authenticate(connection, rank)
            request = struct.pack("<B", _EXCHANGE) + _text(_FIRST_WORLD)
            request += struct.pack("<III", rank, self.size, 0) + _text(b"") + _text(why.encode())
            connection.sendall(_text(request))
            _receive(connection, _LENGTH.size)  # it has read it

    def _authenticate(self, connection: socket.socket, rank: int) -> None:
        job = hashlib.sha256(self.job.encode()).digest()[:16]
        hello = _HELLO.pack(_MAGIC, _VERSION, _STORE_ROLE, 0, 0, rank, 0, 0, job, os.urandom(32))
        connection.sendall(hello)
        magic, refusal, nonce, proof = _CHALLENGE.unpack(_receive(connection, _CHALLENGE.size))
        if magic != _MAGIC or refusal or not hmac.compare_digest(proof, self._proof(b"accepting", hello, nonce)):
            raise ProtocolError("what answers there is not the store of this job")
        connection.sendall(self._proof(b"connecting", hello, nonce))
        if _receive(connection, len(_ADMITTED)) != _ADMITTED:
            raise ProtocolError("the store does not admit the launcher")

    def _proof(self, side: bytes, hello: bytes, nonce: bytes) -> bytes:
        return hmac.digest(self.secret, b"ciranda " + side + hello + nonce, "sha256")


def _text(raw: bytes) -> bytes:
    return _LENGTH.pack(len(raw)) + raw


def _receive(connection: socket.socket, n_bytes: int) -> bytes:
    received = b""
    while len(received) < n_bytes:
        data = connection.recv(n_bytes - len(received))
        if not data:
            raise ProtocolError("the store has ended the connection")
        received += data
    return received
