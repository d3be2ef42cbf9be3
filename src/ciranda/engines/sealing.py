"""Sealing a secret for another process, over a channel on which others may listen.

Key agreement is X25519 (RFC 7748). Every pair of keys is used once, for one secret of 32 bytes. Who can change what the
channel carries can take part in the agreement: the channel itself must keep those out.
"""

from __future__ import annotations

import hashlib
import secrets

_PRIME = 2**255 - 19
_A24 = 121665
_BASE_POINT = 9
N_BYTES = 32


class Key:
    """A private key for one use, and its public key."""

    def __init__(self, private: bytes | None = None) -> None:
        self._private = secrets.token_bytes(N_BYTES) if private is None else private
        self.public = _multiply(self._private, _BASE_POINT.to_bytes(N_BYTES, "little"))

    def agreed(self, other: bytes) -> bytes:
        """Return what the holders of both private keys can compute, from the other's public key."""
        return _multiply(self._private, other)


def seal(secret: bytes, mine: Key, other: bytes) -> bytes:
    """Return the secret for the holder of the other key alone. Sealing it again with the same keys opens it."""
    pair = b"".join(sorted((mine.public, other)))
    pad = hashlib.sha256(b"ciranda secret" + mine.agreed(other) + pair).digest()
    return bytes(byte ^ its_pad for byte, its_pad in zip(secret, pad, strict=True))


def _multiply(scalar: bytes, point: bytes) -> bytes:
    """Return the u coordinate of scalar times point: the Montgomery ladder of RFC 7748, section 5."""
    number = int.from_bytes(scalar, "little") & ~7 & (2**255 - 1) | 2**254
    u = int.from_bytes(point, "little") & (2**255 - 1)
    x2, z2, x3, z3 = 1, 0, u, 1
    for position in reversed(range(255)):
        is_set = number >> position & 1
        if is_set:
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b = x2 + z2, x2 - z2
        aa, bb = a * a % _PRIME, b * b % _PRIME
        da, cb = (x3 - z3) * a % _PRIME, (x3 + z3) * b % _PRIME
        x3, z3 = (da + cb) ** 2 % _PRIME, u * (da - cb) ** 2 % _PRIME
        difference = aa - bb
        x2, z2 = aa * bb % _PRIME, difference * (aa + _A24 * difference) % _PRIME
        if is_set:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return (x2 * pow(z2, _PRIME - 2, _PRIME) % _PRIME).to_bytes(N_BYTES, "little")
