"""A file in memory that ranks open by path and that no death can leave behind. Standard library only."""

from __future__ import annotations

import os


class SharedFile:
    """Content that the processes of the same user read at ``path`` while this process lives.

    It is a memfd named through /proc, with mode 0600: never on a disk, gone with its owner however that dies, and
    readable also by programs whose parent closed every descriptor. Sealed, so that nobody can change it, once complete.
    """

    def __init__(self, name: str) -> None:
        self._fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.fchmod(self._fd, 0o600)

    @property
    def path(self) -> str:
        """The path by which a rank of the same user opens it."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    def append(self, data: bytes) -> None:
        """Append to the file. REQUIRES: not sealed."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def fix_size(self, n_bytes: int) -> None:
        """Fill it with n_bytes zeros. Others may then overwrite them, but not change the size."""
        os.ftruncate(self._fd, n_bytes)
        self._add_seals(0x0001 | 0x0002 | 0x0004)  # seal, shrink, grow

    def read(self, n_bytes: int, at: int) -> bytes:
        """Read n_bytes from the offset."""
        return os.pread(self._fd, n_bytes, at)

    def close(self) -> None:
        """Remove the file. A process that has it open keeps the content."""
        os.close(self._fd)

    def seal(self) -> None:
        """Forbid all further changes, also by other processes."""
        self._add_seals(0x0001 | 0x0002 | 0x0004 | 0x0008)  # seal, shrink, grow, write

    def _add_seals(self, seals: int) -> None:
        import fcntl

        fcntl.fcntl(self._fd, getattr(fcntl, "F_ADD_SEALS", 1033), seals)  # not all are named by Python 3.10


def secret_file(secret: str) -> SharedFile:
    """A file for CIRANDA_SECRET_FILE, which nobody can change."""
    made = SharedFile("ciranda-secret")
    made.append(secret.encode("ascii"))
    made.seal()
    return made
