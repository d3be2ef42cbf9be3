"""The records of a rank, as its engine writes them to the file that its agent has made. Standard library only.

The truth about the layout is ``cpp/observe/binary_format.hpp``.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Iterator
from typing import Protocol

from ciranda.launch.errors import ProtocolError

N_WORDS = 10
N_BYTES = 8 * N_WORDS
MAGIC = int.from_bytes(b"\0CiraRec", "little")
VERSION = 2
BEGIN, NAME, CALL, STEP, LOST, ALGORITHM = range(6)
#: By the element type's number in a call plus one, as `ciranda._core.DATA_TYPES`; the first: no tensor.
DTYPES = (
    "", "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16",
    "float32", "float64", "complex64", "complex128",
)  # fmt: skip
#: By the number of the outcome, 0 for success.
OUTCOMES = ("", "InvalidArgument", "Mismatch", "RanksLost", "Timeout", "Aborted", "Internal")

_ENTRY = struct.Struct(f"={N_WORDS}Q")
_WITH_NAMES = (NAME, ALGORITHM)
_READ_BYTES = N_BYTES << 12

Words = tuple[int, ...]


class RecordFile:
    """A file on the disk for one rank's records, in the folder for temporary files.

    It has no name there, so nothing is left when the process that made it ends, even if it is killed. Others open it by
    ``path``.
    """

    def __init__(self) -> None:
        with tempfile.TemporaryFile() as file:
            self._fd = os.dup(file.fileno())

    @property
    def path(self) -> str:
        """The path by which a rank of the same user opens it."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    @property
    def n_bytes(self) -> int:
        """How long it is now."""
        return os.fstat(self._fd).st_size

    def pieces(self, n_bytes: int) -> Iterator[bytes]:
        """Its content from the beginning, so many bytes at a time."""
        at = 0
        while piece := os.pread(self._fd, n_bytes, at):
            yield piece
            at += len(piece)

    def append(self, data: bytes) -> None:
        """Append to the file. REQUIRES: nothing else appends to it."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def drop_incomplete(self) -> None:
        """Leave out what a killed rank has left incomplete at the end, so that another may go on there."""
        n_bytes = self.n_bytes // N_BYTES * N_BYTES
        os.ftruncate(self._fd, n_bytes)
        os.lseek(self._fd, n_bytes, os.SEEK_SET)  # append() writes there

    def close(self) -> None:
        """Remove it."""
        os.close(self._fd)


class Pieces(Protocol):
    """An object with the content of such a file."""

    def pieces(self, n_bytes: int) -> Iterator[bytes]:
        """Its content from the beginning, so many bytes at a time."""


def entries(file: Pieces) -> Iterator[tuple[Words, bytes]]:
    """The entries of a file, each also as bytes. What a killed rank has left incomplete at the end is left out."""
    rest = b""
    for piece in file.pieces(_READ_BYTES):
        data = rest + piece if rest else piece
        n_whole = len(data) // N_BYTES * N_BYTES
        rest = data[n_whole:]
        at = 0
        for words in _ENTRY.iter_unpack(memoryview(data)[:n_whole]):
            yield words, data[at : at + N_BYTES] if words[0] & 0xFF in _WITH_NAMES else b""
            at += N_BYTES


class Names:
    """The names in a rank's entries, by their numbers.

    Attributes:
        algorithms: the names of algorithms, by their numbers; "" for 0, a call without one.
    """

    def __init__(self) -> None:
        self.algorithms: dict[int, str] = {0: ""}
        self._bytes: dict[int, bytearray] = {}
        self._n_bytes: dict[int, int] = {}

    def take(self, words: Words, raw: bytes) -> None:
        """Take a piece of a name."""
        number, n_bytes = words[1] & 0xFFFFFFFF, words[1] >> 32
        so_far = self._bytes.setdefault(number, bytearray())
        so_far += raw[16 : 16 + n_bytes - len(so_far)]
        self._n_bytes[number] = n_bytes

    def take_algorithm(self, words: Words, raw: bytes) -> None:
        """Take the name of an algorithm."""
        self.algorithms[words[1]] = raw[16:].rstrip(b"\0").decode("ascii", "replace")

    def of(self, number: int) -> str:
        """The name of this number."""
        return self._bytes.get(number, bytearray()).decode("utf-8", "replace")


def check(words: Words) -> None:
    """ProtocolError unless this entry begins records of this version."""
    if words[0] != MAGIC or words[1] != VERSION:
        raise ProtocolError("the engine of a rank writes other records: install the same ciranda on every host")
