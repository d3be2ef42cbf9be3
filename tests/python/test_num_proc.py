"""The number of ranks has the same names in every command, and another launcher's name for it gets a hint."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ciranda.launch import num_proc
from ciranda.launch.api import chosen_hosts
from ciranda.launch.errors import LaunchError
from ciranda.launch.hosts import Host

HERE = {"run": ["ciranda", "run"], "horovodrun": ["horovodrun"]}
SHOW = [sys.executable, "-c", "import os; print(os.environ['CIRANDA_SIZE'])"]


def call(*command: str) -> subprocess.CompletedProcess[str]:
    name, *rest = command
    command = (str(Path(sys.executable).with_name(name)), *rest)  # these of this Python
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_every_command_takes_every_name() -> None:
    names = (*num_proc.NUM_PROC, *num_proc.PER_HOST)
    for name in names:
        for command in HERE.values():
            done = call(*command, name, "2", *SHOW)
            assert (done.returncode, done.stdout.count(":2\n")) == (0, 2), (command, name, done.stderr)
        done = call("ciranda", "tune", name, "3")
        assert (done.returncode, "between two ranks, not 3" in done.stderr) == (2, True), (name, done.stderr)
    done = call("ciranda", "bench", "-h")
    assert all(name in done.stdout for name in ("-np", "--np", "-n", "--num-proc"))


@pytest.mark.parametrize("name", ["--nprocs", "-N", "--ntasks", "--num-processes", "--num_workers", "--world-size"])
def test_another_launchers_name_gets_a_hint(name: str) -> None:
    assert num_proc.is_other_name(name)
    done = call("ciranda", "run", name, "2", "true")
    words = " ".join(done.stderr.replace("│", " ").split())
    assert done.returncode == 2
    assert f"there is no option {name}: {num_proc.HINT}" in words


def test_in_bench_tune_and_horovodrun_too() -> None:
    for command in (["ciranda", "bench"], ["ciranda", "tune"], ["horovodrun"]):
        done = call(*command, "--nprocs", "2")
        assert done.returncode == 2
        assert "-np N" in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["--lr", "--size", "-np", "-H", "--peers", "--name"])
def test_other_options_get_none(name: str) -> None:
    assert not num_proc.is_other_name(name)


def test_options_of_the_command_itself_are_left_alone() -> None:
    done = call("ciranda", "run", "-np", "1", "--no-prefix", sys.executable, "-c",
                "import json, sys; print(json.dumps(sys.argv[1:]))", "--nprocs", "7")  # fmt: skip
    assert (done.returncode, json.loads(done.stdout)) == (0, ["--nprocs", "7"]), done.stderr


def test_per_host_is_for_each_of_the_hosts() -> None:
    assert chosen_hosts(None, "a:8,b", None, per_host=3) == [Host("a", 3), Host("b", 3)]
    assert chosen_hosts(None, None, None, per_host=3) == [Host("localhost", 3)]
    with pytest.raises(LaunchError, match="either -np 4 or --nproc-per-node 2"):
        chosen_hosts(4, None, None, per_host=2)
