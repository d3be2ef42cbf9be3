"""Tells whether the kernel has killed a process for want of memory. Stdlib only."""

from __future__ import annotations

_VMSTAT = "/proc/vmstat"


class MemoryKills:
    """The kernel's count of such kills on this machine. Each of them explains one process that SIGKILL has ended.

    The kernel does not name the process, so ask only about a process that SIGKILL has ended.
    """

    def __init__(self, vmstat: str = _VMSTAT) -> None:
        self._vmstat = vmstat
        self._n_accounted_for = self._count()

    def took_one(self) -> bool:
        """Return whether there was a kill that no earlier call has used as an explanation."""
        if self._count() <= self._n_accounted_for:
            return False
        self._n_accounted_for += 1
        return True

    def _count(self) -> int:
        """Return the number of kills; 0 if the kernel does not count them."""
        try:
            with open(self._vmstat, encoding="ascii") as lines:
                return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
        except OSError:
            return 0
