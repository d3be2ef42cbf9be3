"""`ciranda run --config FILE`, `--print-config`, `--dry-run`; completion; names of options in the help."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info < (3, 11):
    pytest.importorskip("tomli")

FILE = """
np = 2
grace = 3
prefix = false
command = ["sh", "-c", "echo $A $B $CIRANDA_RANK of $CIRANDA_SIZE"]
[env]
A = "x y"
B = 5
"""


def ciranda(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ciranda.launch.cli", *arguments]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "job.toml"
    path.write_text(FILE)
    return str(path)


def test_a_file_has_the_options_and_the_command(file: str) -> None:
    done = ciranda("run", "--config", file)
    assert sorted(done.stdout.splitlines()) == ["x y 5 0 of 2", "x y 5 1 of 2"]
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_given_wins(file: str) -> None:
    done = ciranda("run", "--config", file, "--nproc-per-node", "1", "--env", "A=z", "--prefix")
    assert done.stdout == "[0]<stdout>:z 5 0 of 1\n"
    done = ciranda("run", "--config", file, "-np", "1", "echo", "other")
    assert done.stdout == "other\n"


def test_a_printed_file_has_the_same_effect(file: str, tmp_path: Path) -> None:
    printed = ciranda("run", "--config", file, "--env", "B=6", "--print-config").stdout
    assert "grace = 3.0" in printed
    again = tmp_path / "again.toml"
    again.write_text(printed)
    assert ciranda("run", "--config", str(again), "--print-config").stdout == printed
    assert sorted(ciranda("run", "--config", str(again)).stdout.splitlines()) == ["x y 6 0 of 2", "x y 6 1 of 2"]


def test_a_dry_run_starts_nothing(file: str, tmp_path: Path) -> None:
    done = ciranda("run", "--config", file, "--dry-run", "touch", str(tmp_path / "made"))
    assert done.stdout.splitlines()[:2] == [
        "localhost (this machine): ranks 0, 1",
        f"command: touch {tmp_path / 'made'}",
    ]
    assert "sets A='x y'" in done.stdout
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nump = 2", "there is no option 'nump'; known: bind-to, command"),
        ("dry-run = true", "there is no option 'dry-run'"),
        ("command = 'true'", "command must be a list of texts"),
        ("np = [1]", "np must be one value"),
        ("np = ", "--config"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(text)
    done = ciranda("run", "--config", str(path), "true")
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize("command", [[], [""]])
def test_the_missing_command_is_told(command: list[str]) -> None:
    done = ciranda("run", "-np", "2", *command)
    assert done.returncode == 2
    assert "say what to run" in done.stderr


@pytest.mark.parametrize("command", [[], ["run"], ["bench"], ["tune"], ["doctor"]])
def test_no_name_is_cut_in_the_help(command: list[str]) -> None:
    shown = ciranda(*command, "--help", COLUMNS="80", TERM="dumb").stdout
    assert "…" not in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert command == [] or command == ["doctor"] or re.search(r"--num-proc\b", shown)


def test_options_are_completed() -> None:
    shown = ciranda("run", _CIRANDA_COMPLETE="complete_bash", COMP_WORDS="ciranda run --stall", COMP_CWORD="2").stdout
    assert shown.split() == ["--stall-warning-seconds", "--stall-shutdown-seconds"]
