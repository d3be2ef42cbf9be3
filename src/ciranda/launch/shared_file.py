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
        """What to give to a rank."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    def append(self, data: bytes) -> None:
        """Add to its end. REQUIRES: not sealed."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def close(self) -> None:
        """Remove it. What has opened it keeps its content."""
        os.close(self._fd)

    def seal(self) -> None:
        """No further change, by anyone."""
        import fcntl

        seals = 0x0001 | 0x0002 | 0x0004 | 0x0008  # seal, shrink, grow, write: not all are named by Python 3.10
        fcntl.fcntl(self._fd, getattr(fcntl, "F_ADD_SEALS", 1033), seals)
