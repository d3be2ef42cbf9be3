"""Tells whether the kernel has killed a process for want of memory. Stdlib only."""

from __future__ import annotations

_VMSTAT = "/proc/vmstat"


class MemoryKills:
    """The kernel's count of such kills on this machine, each of which accounts for one process that SIGKILL has ended.

    The kernel does not say which process it was: ask only about one that SIGKILL has ended.
    """

    def __init__(self, vmstat: str = _VMSTAT) -> None:
        self._vmstat = vmstat
        self._n_accounted_for = self._count()

    def took_one(self) -> bool:
        """Whether there was one that no earlier call has accounted for."""
        if self._count() <= self._n_accounted_for:
            return False
        self._n_accounted_for += 1
        return True

    def _count(self) -> int:
        """0 where the kernel does not count them."""
        try:
            with open(self._vmstat, encoding="ascii") as lines:
                return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
        except OSError:
            return 0
