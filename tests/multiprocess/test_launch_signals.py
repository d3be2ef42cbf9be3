"""Signals to `ciranda run`: what ends the job, what is for the ranks, and what a rank still has while it ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from launch_support import Running, close_all, python_rank, start

from ciranda.launch import run as run_function
from ciranda.launch.api import RunOptions

pytestmark = pytest.mark.multiprocess

WAIT = "print('ready', flush=True)\nwhile True: signal.pause()\n"
# Ends well with the name of the first signal that it got: another may come before it has ended.
SAYS_WHICH = (
    "import os, signal\n"
    "said = []\n"
    "def say(number, _frame):\n"
    "  if said: return\n"
    "  said.append(number)\n"
    "  print(signal.Signals(number).name, flush=True)\n"
    "  os._exit(0)\n"
    "for n in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM): signal.signal(n, say)\n"
) + WAIT
# Before it ends, it needs a batch of a worker, which knows nothing of signals.
SAVES_AFTER_A_BATCH = (
    "import os, signal\n"
    "asked, ask = os.pipe()\n"
    "got, give = os.pipe()\n"
    "if os.fork() == 0:\n"
    "  os.close(ask)\n"
    "  while True: os.write(give, os.read(asked, 1))\n"
    "os.close(give)\n"
    "def save(*_):\n"
    "  os.write(ask, b'.')\n"
    "  print('saved' if os.read(got, 1) else 'the worker is gone', flush=True)\n"
    "  os._exit(0)\n"
    "signal.signal(signal.SIGTERM, save)\n"
) + WAIT


@pytest.fixture(autouse=True)
def _close_all() -> Iterator[None]:
    yield
    close_all()


def start_ready(command: list[str], n_ranks: int = 2, **options: object) -> Running:
    """Ranks that end by themselves: of the grace period they take a moment, or more of it on a busy machine."""
    running = start(["run", "-np", str(n_ranks), "--grace", "60", *command], **options)  # type: ignore[arg-type]
    for _ in range(n_ranks):
        assert b"ready" in running.read_line()
    return running


def behind_a_shell(code: str, prelude: str = "") -> list[str]:
    """A rank that is a shell, which has more to do than to become the program."""
    return ["sh", "-c", f'{prelude} "$@"; exit $?', "sh", *python_rank(code)]


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
@pytest.mark.parametrize("command", [python_rank(SAYS_WHICH), behind_a_shell(SAYS_WHICH)], ids=["alone", "wrapped"])
def test_signals_of_resource_managers_are_for_the_ranks(number: signal.Signals, command: list[str]) -> None:
    running = start_ready(command)
    running.process.send_signal(number)
    exit_code, out, err = running.wait()
    assert (exit_code, err) == (0, b"")
    assert sorted(out.splitlines()) == [b"[%d]<stdout>:%s" % (rank, number.name.encode()) for rank in range(2)]
    running.assert_nothing_left()


def test_a_signal_to_every_process_of_the_job_is_for_the_ranks_alone() -> None:
    running = start_ready(python_rank(SAYS_WHICH))
    for pid in running.processes():
        with suppress(ProcessLookupError):  # one that has ended since
            os.kill(pid, signal.SIGUSR1)
    exit_code, out, err = running.wait()
    assert (exit_code, err) == (0, b"")
    assert sorted(out.splitlines()) == [b"[0]<stdout>:SIGUSR1", b"[1]<stdout>:SIGUSR1"]


def test_a_rank_that_such_a_signal_ends_is_named() -> None:
    running = start_ready(python_rank("import signal\n" + WAIT), n_ranks=1)
    running.process.send_signal(signal.SIGUSR2)
    exit_code, _, err = running.wait()
    assert exit_code == 128 + signal.SIGUSR2
    assert b"rank 0 on localhost failed first: killed by SIGUSR2 (signal 12)" in err.splitlines()[-1]


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGALRM])
def test_other_signals_end_the_job_as_sigterm_does(number: signal.Signals) -> None:
    running = start_ready(python_rank(SAYS_WHICH))
    running.process.send_signal(number)
    exit_code, out, err = running.wait()
    assert exit_code == 128 + number
    assert sorted(out.splitlines()) == [b"[0]<stdout>:SIGTERM", b"[1]<stdout>:SIGTERM"]
    assert err.splitlines()[0] == b"ciranda: %s: ending all ranks" % number.name.encode()
    running.assert_nothing_left()


def test_what_ended_the_job_is_said_last() -> None:
    """Not what some rank said of another that had ended already."""
    code = (
        "import signal, sys\n"
        "def notice(*_): raise RuntimeError('RanksLostError: rank 2 is gone')\n"
        "signal.signal(signal.SIGTERM, notice)\n"
    )
    running = start_ready(python_rank(code + WAIT))
    running.process.send_signal(signal.SIGINT)
    exit_code, _, err = running.wait()
    assert exit_code == 130
    lines = err.decode().splitlines()
    assert lines[-1] == "ciranda: SIGINT has ended the job"
    assert sum(line.endswith("Traceback (most recent call last):") for line in lines) == 2


@pytest.mark.parametrize(
    "command",
    [
        python_rank(SAVES_AFTER_A_BATCH),
        behind_a_shell(SAVES_AFTER_A_BATCH),
        behind_a_shell(SAVES_AFTER_A_BATCH, "trap : TERM;"),
    ],
    ids=["alone", "wrapped", "trapped"],
)
def test_a_rank_that_saves_before_it_ends_has_its_workers_until_then(command: list[str]) -> None:
    """And not longer: of the grace period it takes a moment."""
    running = start_ready(command)
    running.process.send_signal(signal.SIGTERM)
    exit_code, out, _ = running.wait()
    assert exit_code == 143
    assert sorted(out.splitlines()) == [b"[0]<stdout>:saved", b"[1]<stdout>:saved"]
    running.assert_nothing_left()


def test_signals_that_the_calling_program_uses_stay_its_own(tmp_path: Path) -> None:
    got: list[int] = []
    os.mkfifo(tmp_path / "fifo")
    before = signal.signal(signal.SIGUSR1, lambda number, _frame: got.append(number))
    try:
        options = RunOptions(store_factory=IdleStore)
        assert run_function(os.kill, (os.getpid(), signal.SIGUSR1), np=1, options=options) == [None]
    finally:
        assert signal.signal(signal.SIGUSR1, before) is not signal.SIG_DFL
    assert got == [signal.SIGUSR1]


class IdleStore:
    """A store that nobody connects to."""

    port = 4242

    def __init__(self, *arguments: object) -> None:
        pass

    def lose(self, rank: int, why: str) -> None:
        pass

    def close(self) -> None:
        pass


# In place of a system that starts no more processes: os.fork(), from the n-th call of a process and its ancestors on.
_REFUSES = """
import os, sys
fork, n_left = os.fork, int(os.environ["N_FORKS"])
def refuse():
    global n_left
    n_left -= 1
    if n_left < 0:
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return fork()
os.fork = refuse
"""


@pytest.mark.parametrize("n_forks", [0, 1, 2])
def test_a_system_that_starts_no_more_processes_is_said_in_a_sentence(n_forks: int, tmp_path: Path) -> None:
    """The agent's other half, the first rank, and the second."""
    (tmp_path / "sitecustomize.py").write_text(_REFUSES)
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    env = {"PYTHONPATH": path, "N_FORKS": str(n_forks)}
    running = start(["run", "-np", "2", "sleep", "60"], env=env)
    exit_code, out, err = running.wait()
    assert (exit_code, out) == (1, b"")
    (line,) = err.decode().splitlines()
    assert "raise 'ulimit -u'" in line
    assert ("cannot start ranks on localhost" if n_forks == 0 else f"cannot start rank {n_forks - 1}") in line
    running.assert_nothing_left()
