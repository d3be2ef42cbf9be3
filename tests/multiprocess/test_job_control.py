"""`ciranda jobs` and `ciranda stacks`: a user's own jobs on this machine, asked from another terminal."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    def looks_of(seen: dict[int, str]) -> list[list[dict[str, Any]]]:
        numbers = range(len(next(iter(seen.values()))))
        return [[{"rank": rank, "host": "ab"[rank > 5], "where": places[number]} for rank, places in seen.items()]
                for number in numbers]  # fmt: skip

    # Of every place that has a tenth of the looks is told, first of that where the other ranks were not as often.
    looks = looks_of({10: "a" * 7 + "w" * 13, 2: "bbbbbaaaaaaccdduvwww", 7: "a" * 9 + "w" * 11})
    assert places(looks) == [
        "rank 2 (a), 20 looks:",
        "     5 (others 0)  b",
        "     2 (others 0)  c",
        "     2 (others 0)  d",
        "     6 (others 8)  a",
        "     3 (others 12)  w",
        "     2  in 2 more places",
        "rank 7 (b), 20 looks:",
        "    11 (others 8)  w",
        "     9 (others 6)  a",
        "rank 10 (b), 20 looks:",
        "    13 (others 7)  w",
        "     7 (others 8)  a",
    ]
    assert places(looks, frozenset([7]))[0] == "rank 7 (b), 20 looks:"
    # So is a place with less where the others are not.
    usual = "a" * 10 + "d" * 10 + "e" * 8
    seldom = places(looks_of({0: f"{usual}bb", 1: f"{usual}ee", 2: f"{usual}ec"}))
    assert seldom[1:3] == ["     2 (others 0)  b", "    10 (others 10)  a"]
    assert seldom[-1] == "     1  in 1 more place"
    # A rank alone has nothing to be compared with. Where no place has a tenth of the looks, a few are told of.
    assert places(looks_of({2: "abcdefghijklmnopqrst"}))[1:] == [
        *(f"     1  {letter}" for letter in "abcdefghijklmnopqrst")
    ]


def test_stacks_of_a_job(env: dict[str, str]) -> None:
    running = job(env)
    (name,) = (line.split()[0] for line in ask(env, "jobs").stdout.splitlines())
    shown = ask(env, "stacks", name[:5], "--short").stdout.splitlines()
    assert [line.partition(":")[0] for line in shown] == ["rank 0 (localhost)", "rank 1 (localhost)"]
    counted = ask(env, "stacks", "--samples", "3", "--ranks", "1").stdout
    assert re.match(r"rank 1 \(localhost\), 3 looks:\n +\d \(others \d\)  .+\n", counted)
    assert "rank 0" not in counted
    for options in (["stacks", "--ranks", "1,7"], ["top", "--once", "--ranks", "7"]):
        refused = ask(env, *options)
        assert refused.returncode == 2
        assert "--ranks: there is no rank 7; those that run are 0, 1" in refused.stderr
    assert ask(env, "stacks", "--short", "--samples", "3").returncode == 2
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
