"""`ciranda jobs` and `ciranda stacks`: a user's own jobs on this machine, asked from another terminal."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch_support import Running, close_all, python_rank, start, until

from ciranda.launch.stacks_cli import places

pytestmark = pytest.mark.multiprocess

WAITS = "import signal; print('ready', flush=True); signal.pause()"


@pytest.fixture(autouse=True)
def _close_all() -> Iterator[None]:
    yield
    close_all()


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"XDG_RUNTIME_DIR": str(tmp_path)}


def ask(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ciranda.launch.cli", *arguments]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)


def job(env: dict[str, str], n_ranks: int = 2) -> Running:
    running = start(["run", "-np", str(n_ranks), *python_rank(WAITS)], env=env)
    running.read_lines(n_ranks)
    return running


def test_own_jobs_are_listed(env: dict[str, str], tmp_path: Path) -> None:
    assert ask(env, "jobs").stdout == ""
    job(env)
    job(env, 1)
    lines = ask(env, "jobs").stdout.splitlines()
    assert sorted(line.split("  ")[2] for line in lines) == ["1 ranks on localhost", "2 ranks on localhost"]
    assert (tmp_path / "ciranda").stat().st_mode & 0o777 == 0o700
    refused = ask(env, "stacks")
    assert refused.returncode == 2
    assert re.search(r"2 jobs of yours run here; say which, by its identifier:\n  \w+  .*python", refused.stderr)


def test_samples_of_stacks() -> None:
    looks = [[{"rank": 10, "host": "b", "where": "f, t.py:1"}, {"rank": 2, "host": "a", "where": where}]
             for where in ("act, t.py:9", "read, t.py:3", "act, t.py:9", "x", "y", "x")]  # fmt: skip
    assert places(looks) == [
        "rank 2 (a): 2 of 6 act, t.py:9; 2 of 6 x; 1 of 6 read, t.py:3; 1 more place",
        "rank 10 (b): 6 of 6 f, t.py:1",
    ]


def test_stacks_of_a_job(env: dict[str, str]) -> None:
    running = job(env)
    (name,) = (line.split()[0] for line in ask(env, "jobs").stdout.splitlines())
    shown = ask(env, "stacks", name[:5], "--short").stdout.splitlines()
    assert [line.partition(":")[0] for line in shown] == ["rank 0 (localhost)", "rank 1 (localhost)"]
    counted = ask(env, "stacks", "--samples", "3", "--ranks", "1").stdout
    assert re.fullmatch(r"rank 1 \(localhost\): \d of 3 .+\n", counted)
    assert ask(env, "stacks", "none").returncode == 2
    assert running.process.poll() is None, "the job goes on"


def test_a_job_that_has_ended_leaves_nothing(env: dict[str, str], tmp_path: Path) -> None:
    running = job(env)
    running.process.terminate()
    running.wait()
    assert list((tmp_path / "ciranda").iterdir()) == []


def test_a_job_whose_launcher_was_killed_is_forgotten(env: dict[str, str], tmp_path: Path) -> None:
    running = job(env)
    running.process.kill()
    running.process.wait()
    until(lambda: not running.processes(), what="the end of every process")
    assert ask(env, "jobs").stdout == ""
    assert list((tmp_path / "ciranda").iterdir()) == []


def test_clients_that_ask_nonsense_or_nothing_are_no_burden(env: dict[str, str], tmp_path: Path) -> None:
    running = job(env)
    (path,) = (tmp_path / "ciranda").iterdir()
    for said in (b"", b"what\n", b"x" * 10_000, b"job"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(str(path))
            connection.sendall(said)
    assert len(ask(env, "jobs").stdout.splitlines()) == 1
    assert running.process.poll() is None


def test_a_folder_that_others_can_enter_is_not_used(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "ciranda").mkdir(mode=0o755)
    job(env)
    assert list((tmp_path / "ciranda").iterdir()) == []
    assert ask(env, "jobs").stdout == ""
