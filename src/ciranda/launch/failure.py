"""The rank that failed first, and its report. Pure."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from ciranda.launch import stopped

TAIL_BYTES = 32 << 10
TAIL_LINES = 60
TRACEBACK = b"Traceback (most recent call last):"
# What a rank's last words contain when it ended because another rank did.
_SECONDHAND = (b"RanksLost", b"HorovodInternalError", b"AbortedError")


def how_it_ended(code: int) -> str:
    """``exit code 3`` or ``killed by SIGKILL (signal 9)``, for an exit code, or minus the signal."""
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "a signal"
    return f"killed by {name} (signal {-code})"


@dataclass(frozen=True)
class RankFailure:
    """A rank that ended badly.

    Attributes:
        code: its exit code, or minus the signal that killed it.
        is_for_memory: whether the kernel has counted a process of that host that it killed for want of memory.
        stopped_seconds: how long it was stopped, if its agent has killed it for that; else 0.
    """

    rank: int
    host: str
    code: int
    stderr_tail: bytes
    is_for_memory: bool = False
    stopped_seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """As a shell reports it."""
        return self.code if self.code >= 0 else 128 - self.code

    @property
    def is_secondhand(self) -> bool:
        """Whether its output reports that it ended because another rank was lost."""
        last_lines = self.stderr_tail.splitlines()[-TAIL_LINES:]
        return any(word in line for line in last_lines for word in _SECONDHAND)

    def how(self) -> str:
        """``exit code 3`` or ``killed by SIGKILL (signal 9)``."""
        if self.is_for_memory:
            return "killed by SIGKILL (signal 9); the kernel has killed a process of this host for want of memory"
        ended = how_it_ended(self.code)
        return f"{ended}, since {stopped.why(self.stopped_seconds)}" if self.stopped_seconds else ended


def culprit(failures: Sequence[RankFailure]) -> RankFailure:
    """The cause: the first failure that does not itself name another rank, else the first. REQUIRES: not empty."""
    return next((failure for failure in failures if not failure.is_secondhand), failures[0])


def report(failure: RankFailure) -> str:
    """The last output on the screen: a header with rank, host and code, then the end of the rank's stderr."""
    header = f"ciranda: rank {failure.rank} on {failure.host} failed first: {failure.how()}"
    words = last_words(failure.stderr_tail).decode("utf-8", "surrogateescape")
    if not words:
        # Of the kernel's own kills how() says so; other programs, such as systemd-oomd, kill likewise.
        is_explained = failure.is_for_memory or failure.stopped_seconds > 0
        is_unexplained = failure.code == -signal.SIGKILL and not is_explained
        hint = " (SIGKILL often means that memory ran out: see the system's log)" if is_unexplained else ""
        return f"{header}; it wrote nothing to stderr{hint}"
    return f"{header}; the end of its stderr:\n{words}"


def last_words(stderr_tail: bytes) -> bytes:
    """The last lines, from the first traceback among them on if there is one."""
    lines = [line.rsplit(b"\r", 1)[-1] for line in stderr_tail.replace(b"\r\n", b"\n").rstrip().split(b"\n")]
    lines = lines[-TAIL_LINES:]
    for index, line in enumerate(lines):
        if line.endswith(TRACEBACK):
            return b"\n".join(lines[index:])
    return b"\n".join(lines[-20:])


def traceback_text(error: BaseException, caller: str) -> str:
    """The traceback of an error, without the first frames that are of ``caller``, the file that called the function."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None and frame.tb_frame.f_code.co_filename == caller:
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, frame))
