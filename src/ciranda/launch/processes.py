"""The few Linux calls that keep a tree of processes together. Standard library only.

A *subreaper* becomes the parent of every descendant whose own parent dies, so that none escapes by forking twice or by
starting a session of its own. A *death signal* is sent to a process by the kernel when its parent dies.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress

END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")


def become_subreaper() -> None:
    """From now on orphaned descendants become children of this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(number: int, parent: int) -> None:
    """Ask for signal ``number`` when ``parent`` dies; if it has died already, send it to this process now."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def are_processes_shown() -> bool:
    """Whether /proc shows the processes that this one can see; without it, none can be found that is to be ended."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def descendants(root: int) -> list[int]:
    """Every living or unreaped process below ``root``, parents before children, read from /proc at this moment."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            parent = _parent_of(name)
            if parent is not None:
                children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    frontier = [root]
    while frontier:
        frontier = [child for pid in frontier for child in children.get(pid, [])]
        found += frontier
    return found


def _parent_of(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:  # it has just gone
        return None
    return int(stat[stat.rindex(b")") + 1 :].split()[1])


def signal_descendants(number: int) -> None:
    """Send signal ``number`` to every descendant of this process."""
    for pid in descendants(os.getpid()):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_descendants() -> None:
    """SIGKILL and reap descendants until none is left. REQUIRES: become_subreaper() was called.

    A killed parent hands its children to this process, so that each round sees those that the last one uncovered.
    """
    while True:
        signal_descendants(signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def open_standard_streams() -> None:
    """Put /dev/null where 0, 1 or 2 is closed, so that no pipe ever gets one of these numbers, and print() works."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def heed_end_signals() -> None:
    """Take SIGTERM, SIGINT and SIGHUP, also if they were blocked in whoever started this process."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)
