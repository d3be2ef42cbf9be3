"""The few Linux calls that keep a tree of processes together. Standard library only.

A *subreaper* becomes the parent of every descendant whose own parent dies, so that none escapes by forking twice or by
starting a session of its own. A *death signal* is sent to a process by the kernel when its parent dies.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress

#: End the job, in an orderly way.
END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM)
#: Mean what the ranks say they mean; resource managers send them some time before a limit.
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)

#: What an agent says that the system does not let start its other half.
NO_PROCESS = "CIRANDA-NO-PROCESS"
#: What an agent is told that an ssh server starts.
BY_SSH = "ssh"

_SHELLS = frozenset(("ash", "bash", "busybox", "dash", "ksh", "sh", "zsh"))

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")


def become_subreaper() -> None:
    """From now on orphaned descendants become children of this process.

    Every Linux that Ciranda runs on can do this, but not QEMU 7 for programs of another processor: there a process
    outlives the job if it has left its parent.
    """
    try:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise


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


class Tree:
    """Every living or unreaped process, read from /proc when it is made."""

    def __init__(self) -> None:
        self._children: dict[int, list[int]] = {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                parent = _parent_of(name)
                if parent is not None:
                    self._children.setdefault(parent, []).append(int(name))

    def children(self, pid: int) -> Sequence[int]:
        """Those whose parent ``pid`` is."""
        return self._children.get(pid, ())

    def to_end(self, pid: int) -> Iterator[int]:
        """Those at and below ``pid`` that SIGTERM is for: not what belongs to a process that attends to its own end.

        Such a process needs its workers until then, as to get the batch after which it saves its state. A shell does
        not attend to its end before the program that it runs has ended, so that this is for both.
        """
        yield pid
        if not takes(pid, signal.SIGTERM) or _is_shell(pid):
            for child in self.children(pid):
                yield from self.to_end(child)

    def takers(self, pid: int, number: int) -> Iterator[int]:
        """The first process on every way down from ``pid``, itself included, that takes signal ``number``."""
        if takes(pid, number):
            yield pid
            return
        for child in self.children(pid):
            yield from self.takers(child, number)


def takes(pid: int, number: int) -> bool:
    """Whether the process handles, ignores or awaits signal ``number``, which else would do what it does by default."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            fields = dict(line.split(b":", 1) for line in file if line.startswith(b"Sig"))
    except OSError:  # it has just gone
        return False
    return any(int(fields.get(name, b"0"), 16) >> (number - 1) & 1 for name in (b"SigCgt", b"SigIgn", b"SigBlk"))


def _is_shell(pid: int) -> bool:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")) in _SHELLS
    except OSError:  # it has just gone
        return False


def send_signal(pid: int, number: int) -> None:
    """Send signal ``number``, unless the process has gone or belongs to someone else."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def session_id(pid: int) -> int:
    """The session of a process; -1 if it has gone."""
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def is_group_alive(leader: int) -> bool:
    """Whether the process group that a process has led has members, of which some may be unreaped."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # they are another user's
        pass
    return True


def why_not_started(error: OSError) -> str:
    """Why the system starts no process, with the way out where it is known."""
    if error.errno == errno.EAGAIN:
        return "this user, or container, has as many processes as allowed: raise 'ulimit -u', or the container's limit"
    return error.strerror or str(error)


def descendants(root: int) -> list[int]:
    """Every living or unreaped process below ``root``, parents before children."""
    tree = Tree()
    found: list[int] = []
    frontier = [root]
    while frontier:
        frontier = [child for pid in frontier for child in tree.children(pid)]
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
        send_signal(pid, number)


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


def heed_signals() -> None:
    """Take the signals for a launcher, also if they were blocked in whoever started this process."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (*END_SIGNALS, *PASSED_ON))
