"""One rank as the agent starts it: a session of its own, its output in pipes, gone when the agent goes. Stdlib only."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from ciranda.launch.processes import END_SIGNALS, PASSED_ON, die_with_parent
from ciranda.launch.rank_line import VARIABLE as AGENT_FD
from ciranda.launch.rank_line import RankLine

NOT_FOUND = 127
NOT_EXECUTABLE = 126


class RankProcess:
    """A running rank.

    Attributes:
        rank, pid: who it is.
        pipes: read ends of its streams, by name; non-blocking, owned here.
        line: to it and from it, in an elastic job; None in another.
    """

    def __init__(
        self,
        rank: int,
        argv: Sequence[bytes],
        env: Mapping[bytes, bytes],
        want_result: bool,
        cpus: Collection[int] = (),
        line: RankLine | None = None,
    ) -> None:
        """Fork and exec, on the given CPUs if there are any.

        A command that cannot run shows as the rank's stderr and exit code 127 or 126.

        Raises:
            OSError: there is no pipe or process left; nothing is open then.
        """
        self.rank = rank
        self.line = line
        self.pipes: dict[str, int] = {}
        writers: dict[str, int] = {}
        try:
            for name in ("stdout", "stderr", "result") if want_result else ("stdout", "stderr"):
                self.pipes[name], writers[name] = os.pipe()
                os.set_blocking(self.pipes[name], False)
            kept = dict(env) if line is None else {**env, AGENT_FD.encode(): b"%d" % line.theirs.fileno()}
            self.pid = _fork(lambda parent: _become(list(argv), kept, writers, parent, cpus, line))
        except OSError:
            for fd in self.pipes.values():
                os.close(fd)
            raise
        finally:
            for fd in writers.values():
                os.close(fd)
            if line is not None:
                line.theirs.close()


def _fork(run: Callable[[int], None]) -> int:
    """Start a process that calls ``run`` with its parent's number, and ends; its own number."""
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    try:
        pid = os.fork()
        if pid == 0:
            try:
                run(parent)
            finally:
                os._exit(NOT_EXECUTABLE)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)


def _become(
    argv: list[bytes],
    env: dict[bytes, bytes],
    writers: Mapping[str, int],
    parent: int,
    cpus: Collection[int],
    line: RankLine | None,
) -> None:
    """In the child: set everything up and exec; returns only if that failed."""
    if cpus:
        with suppress(OSError):  # the CPUs were taken from all of us meanwhile: then it runs on any
            os.sched_setaffinity(0, cpus)
    os.setsid()
    die_with_parent(signal.SIGKILL, parent)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, *END_SIGNALS, *PASSED_ON):  # Python and agents ignore some of them
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (*END_SIGNALS, *PASSED_ON))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(writers["stdout"], 1)
    os.dup2(writers["stderr"], 2)
    if "result" in writers:
        os.set_inheritable(writers["result"], True)
        env[b"CIRANDA_RESULT_FD"] = b"%d" % writers["result"]
    if line is not None:
        line.theirs.set_inheritable(True)
    try:
        os.execvpe(argv[0], argv, env)
    except FileNotFoundError:
        _fail(b"cannot run %s: no such program (is it on the PATH of this host?)" % argv[0], NOT_FOUND)
    except OSError as error:
        _fail(b"cannot run %s: %s" % (argv[0], (error.strerror or str(error)).encode()), NOT_EXECUTABLE)
    except ValueError as error:  # an empty name
        _fail(b"cannot run '%s': %s" % (argv[0], str(error).encode()), NOT_EXECUTABLE)


def _fail(text: bytes, code: int) -> None:
    os.write(2, b"ciranda: " + text + b"\n")
    os._exit(code)
