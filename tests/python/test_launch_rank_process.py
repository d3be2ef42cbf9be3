"""A rank that the system does not let start."""

from __future__ import annotations

import os
import signal

import pytest

from ciranda.launch.processes import END_SIGNALS
from ciranda.launch.rank_process import RankProcess


def open_files() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("missing", ["fork", "pipe"])
def test_nothing_is_left_of_a_rank_that_cannot_start(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pipes_left = 2
    pipe = os.pipe

    def refuse() -> tuple[int, int]:
        nonlocal pipes_left
        pipes_left -= 1
        if missing == "pipe" and pipes_left == 0:
            raise OSError(24, "Too many open files")
        return pipe()

    def refuse_fork() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "pipe", refuse)
    monkeypatch.setattr(os, "fork", refuse_fork)
    before = open_files()
    with pytest.raises(OSError, match="Too many open files" if missing == "pipe" else "temporarily unavailable"):
        RankProcess(0, [b"true"], {}, want_result=True)
    assert open_files() == before
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()).isdisjoint(END_SIGNALS)


def test_a_command_without_a_name_says_so() -> None:
    process = RankProcess(0, [b""], {}, want_result=False)
    assert os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1]) == 126
    assert os.read(process.pipes["stderr"], 1000).startswith(b"ciranda: cannot run '': ")
    for fd in process.pipes.values():
        os.close(fd)
