"""Handshake: an agent and a launcher that meet by TCP prove to each other that they have the secret.

    agent                                                     launcher
      hello: the host's index, number of hosts, job, nonce ->
                                                           <- challenge: nonce, HMAC("launcher" | hello | nonce)
      proof: HMAC("agent" | hello | nonce)                 ->

As the ranks do (cpp/membership/handshake.hpp): messages have fixed lengths, so that no allocation depends on an
unauthenticated peer, and the HMACs cover all that was said, so that a recorded exchange proves nothing elsewhere. The
launcher says nothing to who does not begin with a hello of its job. Both sides are pure: bytes in, bytes out, a state.
The keys that seal what follows (sealing.py) are derived from the same. Standard library only.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass
from enum import Enum

_MAGIC = b"CIRANDA\x02"
_HELLO = struct.Struct("<8sII16s32s")
_CHALLENGE = struct.Struct("<8s32s32s")
_PROOF_BYTES = 32
NONCE_BYTES = 32


@dataclass(frozen=True)
class Terms:
    """What both sides must have in common: the secret, the job's name, and its number of hosts."""

    secret: bytes
    job: str
    n_hosts: int


@dataclass(frozen=True)
class Keys:
    """What seals the messages of each side."""

    of_agent: bytes
    of_launcher: bytes


class State(Enum):
    """How far it is. PROVED: the other side has the secret."""

    PENDING = "pending"
    PROVED = "proved"
    REFUSED = "refused"


def ranks_secret(secret: bytes, job_id: str) -> str:
    """Return the ranks' own secret, in hex: who has the agents' can derive it, so that it is never sent."""
    return _mac(secret, b"ciranda ranks", job_id.encode()).hex()


def _mac(key: bytes, *parts: bytes) -> bytes:
    return hmac.digest(key, b"".join(parts), "sha256")


def _short(job: str) -> bytes:
    return hashlib.sha256(job.encode()).digest()[:16]


class _Handshake:
    """What both sides have: bytes are collected until a message is complete."""

    def __init__(self, terms: Terms, expected: int) -> None:
        self._terms = terms
        self._expected = expected
        self._begins_with_magic = True
        self._received = b""
        self._hello = b""
        self.state = State.PENDING
        self.keys = Keys(b"", b"")

    def wants(self) -> int:
        """How many bytes may be read from the connection now: later ones are not the handshake's."""
        return self._expected - len(self._received) if self.state is State.PENDING else 0

    def receive(self, data: bytes) -> bytes:
        """Take at most wants() bytes; return what to send now."""
        self._received += data
        if self._begins_with_magic and not _MAGIC.startswith(self._received[: len(_MAGIC)]):
            self.state = State.REFUSED
        if self.state is not State.PENDING or len(self._received) < self._expected:
            return b""
        message, self._received = self._received, b""
        return self._on_message(message)

    def _on_message(self, message: bytes) -> bytes:
        raise NotImplementedError

    def _proof(self, side: bytes, nonce: bytes) -> bytes:
        return _mac(self._terms.secret, side, self._hello, nonce)

    def _prove(self, nonce: bytes) -> None:
        self.keys = Keys(self._proof(b"ciranda from agent", nonce), self._proof(b"ciranda from launcher", nonce))
        self.state = State.PROVED


class ConnectingHandshake(_Handshake):
    """The agent's side."""

    def __init__(self, terms: Terms, index: int, nonce: bytes) -> None:
        super().__init__(terms, _CHALLENGE.size)
        self._hello = _HELLO.pack(_MAGIC, index, terms.n_hosts, _short(terms.job), nonce)

    def begin(self) -> bytes:
        """The first bytes to send."""
        return self._hello

    def _on_message(self, message: bytes) -> bytes:
        _, nonce, proof = _CHALLENGE.unpack(message)
        if not hmac.compare_digest(proof, self._proof(b"ciranda launcher", nonce)):
            self.state = State.REFUSED
            return b""
        self._prove(nonce)
        return self._proof(b"ciranda agent", nonce)


class AcceptingHandshake(_Handshake):
    """The launcher's side. ``index`` is the agent's host's, once proved; 0 is the launcher's own, and no agent's."""

    def __init__(self, terms: Terms, nonce: bytes) -> None:
        super().__init__(terms, _HELLO.size)
        self._nonce = nonce
        self.index = 0

    def _on_message(self, message: bytes) -> bytes:
        return self._on_proof(message) if self._hello else self._on_hello(message)

    def _on_hello(self, message: bytes) -> bytes:
        _, self.index, n_hosts, job, _ = _HELLO.unpack(message)
        if n_hosts != self._terms.n_hosts or job != _short(self._terms.job) or not 0 < self.index < n_hosts:
            self.state = State.REFUSED
            return b""
        self._hello = message
        self._expected, self._begins_with_magic = _PROOF_BYTES, False
        return _CHALLENGE.pack(_MAGIC, self._nonce, self._proof(b"ciranda launcher", self._nonce))

    def _on_proof(self, message: bytes) -> bytes:
        if hmac.compare_digest(message, self._proof(b"ciranda agent", self._nonce)):
            self._prove(self._nonce)
        else:
            self.state = State.REFUSED
        return b""
