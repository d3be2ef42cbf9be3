"""Ranks forked from a process that has imported torch: a rank that imports it itself computes for four seconds first.

There is a parent for each rank number, since what a process draws as it starts (such as the order of sets) differs from
rank to rank, as between processes that are started. It has imported torch and nothing of ours, and has one thread.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from rank_main import receive, send

_MAIN = Path(__file__).with_name("rank_main.py")
#: What a rank sets for itself. All other variables may have been read as the parent started, or as it imported.
_SET_LATE = ("CIRANDA_", "HOROVOD_", "PYTEST_")
_MOST_ENVIRONMENTS = 3
Environment = frozenset[tuple[str, str]]


class ForkedProcess:
    """What `subprocess.Popen` offers of a process that is another's child."""

    def __init__(self, pid: int, reap: Callable[[int], int]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._reap = reap

    def poll(self) -> int | None:
        return self._end_within(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._end_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(["forked rank"], timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _end_within(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            descriptor = os.pidfd_open(self.pid)  # of this process and no later one: it is there until it is reaped
            try:
                has_ended = bool(select.select([descriptor], [], [], timeout)[0])
            finally:
                os.close(descriptor)
            if has_ended:
                self.returncode = self._reap(self.pid)
        return self.returncode


class _Parent:
    """Forks ranks. It ends when this process does."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._connection, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(_MAIN), str(theirs.fileno()), "torch", "torch._dynamo"],
                env=env,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def fork(self, env: Mapping[str, str], descriptors: list[int]) -> ForkedProcess:
        send(self._connection, ("fork", (dict(env), os.getcwd())))
        socket.send_fds(self._connection, [b"+"], descriptors)
        return ForkedProcess(receive(self._connection), self._reap)

    def _reap(self, pid: int) -> int:
        send(self._connection, ("reap", pid))
        code: int = receive(self._connection)
        return code

    def close(self) -> None:
        self._connection.close()
        self._process.wait()


def _early(env: Mapping[str, str]) -> Environment:
    return frozenset((name, value) for name, value in env.items() if not name.startswith(_SET_LATE))


#: By environment and rank number. Tests and the libraries that they import may change this process's environment.
_parents: dict[Environment, dict[int, _Parent]] = {}


@atexit.register
def _close() -> None:
    for of_rank in _parents.values():
        for parent in of_rank.values():
            parent.close()
    _parents.clear()


def prepare(env: Mapping[str, str], usual: Mapping[str, str], n_ranks: int) -> bool:
    """Return whether ranks with `env` can be forked; if so, their parents begin to import.

    They cannot if `env` differs from the `usual` one of ranks by what may be read early, nor if there are parents for
    many other environments already: each takes time and memory.
    """
    early = _early(env)
    if early != _early(usual) or (early not in _parents and len(_parents) == _MOST_ENVIRONMENTS):
        return False
    of_rank = _parents.setdefault(early, {})
    for rank in range(n_ranks):
        if rank not in of_rank:
            of_rank[rank] = _Parent(dict(early))
    return True


def fork(rank: int, env: Mapping[str, str], connection: int, stderr: int) -> ForkedProcess:
    """Fork a rank that reads functions from `connection`, with the standard output of this process.

    REQUIRES: `prepare` has returned True for its environment.
    """
    return _parents[_early(env)][rank].fork(env, [connection, 1, stderr])
