"""Sealed records: what passes between launcher and agent by TCP, after their handshake, cannot be forged.

A record is its length, an HMAC and the bytes. The HMAC is under the sender's key and covers the record's number, so
that records which were changed, repeated, left out, reordered or sent back are errors. Nothing is encrypted: no secret
is sent. Pure. Standard library only.
"""

from __future__ import annotations

import hmac
import struct

from ciranda.launch.errors import ProtocolError

_LENGTH = struct.Struct("<I")
_NUMBER = struct.Struct("<Q")
_MAC_BYTES = 32
_HEADER_BYTES = _LENGTH.size + _MAC_BYTES
MOST_BYTES = 256 << 10  # in a record


def _mac(key: bytes, number: int, data: bytes) -> bytes:
    return hmac.digest(key, _NUMBER.pack(number) + data, "sha256")


class Sealer:
    """Makes records of bytes."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0

    def seal(self, data: bytes) -> bytes:
        """Return the records that carry ``data``."""
        records = bytearray()
        for start in range(0, len(data), MOST_BYTES):
            piece = data[start : start + MOST_BYTES]
            records += _LENGTH.pack(len(piece)) + _mac(self._key, self._number, piece) + piece
            self._number += 1
        return bytes(records)


class Opener:
    """Takes records apart, as they come in pieces."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0
        self._buffer = bytearray()

    def open(self, data: bytes) -> bytes:
        """Return what the records that ``data`` completes carry.

        Raises:
            ProtocolError: one is not the other side's next.
        """
        self._buffer += data
        opened = bytearray()
        while len(self._buffer) >= _HEADER_BYTES:
            (n_bytes,) = _LENGTH.unpack_from(self._buffer)
            if n_bytes > MOST_BYTES:
                raise ProtocolError(f"a record of {n_bytes} bytes")
            if len(self._buffer) < _HEADER_BYTES + n_bytes:
                break
            piece = bytes(self._buffer[_HEADER_BYTES : _HEADER_BYTES + n_bytes])
            mac = bytes(self._buffer[_LENGTH.size : _HEADER_BYTES])
            if not hmac.compare_digest(mac, _mac(self._key, self._number, piece)):
                raise ProtocolError("a record that is not the other side's: something between the hosts changes data")
            del self._buffer[: _HEADER_BYTES + n_bytes]
            self._number += 1
            opened += piece
        return bytes(opened)
