"""A rank that others wait for: where it stands is told, whatever it does, and a rank that was only slow goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import netns
import pytest
from launch_support import until

pytestmark = pytest.mark.multiprocess

# Rank 1 of three does something else than the call that the others wait in, until the file "go" is there.
PROGRAM = """
import ctypes, os, signal, sys, threading, time
import numpy as np
import ciranda

ciranda.init()
ciranda.allreduce(np.ones(1), name="first")

def load_batch(how):
    lock = threading.Lock()
    if how == "loop":
        while not os.path.exists("go"):
            sum(range(100))
    elif how == "busy threads":
        for _ in range(3):
            threading.Thread(target=compute, daemon=True).start()
        compute()
    elif how == "c":
        ctypes.CDLL(None).sleep(100)  # HERE c
    elif how == "c with gil":
        ctypes.PyDLL(None).sleep(100)  # HERE c with gil
    elif how == "lock":
        lock.acquire()
        lock.acquire()  # HERE lock
    elif how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)

def compute():
    while not os.path.exists("go"):
        list(map(str, range(50)))
        try:
            raise ValueError
        except ValueError:
            pass

if ciranda.rank() == 1:
    load_batch(sys.argv[1])
ciranda.allreduce(np.ones(2), name="second")
print("done", flush=True)
"""
LINE_OF = {
    text.partition("# HERE ")[2]: number for number, text in enumerate(PROGRAM.splitlines(), 1) if "# HERE " in text
}


# Rank 0 is killed; another process takes its place, as rank 1, and is late then.
ELASTIC = """
import os, signal, time
import numpy as np
import ciranda
from ciranda._frameworks.objects import broadcast_object
from ciranda.elastic import ObjectState, run_fn

ciranda.init()

def load_batch():
    while not os.path.exists("go"):
        time.sleep(0.01)

def train(state):
    is_whole = not os.path.exists("killed")  # alike on all ranks: none is killed before all have made the next call
    ciranda.allreduce(np.ones(1), name="first")
    if is_whole:
        if ciranda.rank() == 0:
            open("killed", "x").close()
            os.kill(os.getpid(), signal.SIGKILL)
    elif ciranda.rank() == 1:
        load_batch()
    ciranda.allreduce(np.ones(1), name="second")

run_fn(train, lambda: None)(ObjectState(broadcast_object, ciranda.rank))
"""


@contextmanager
def job(folder: Path, how: str, *options: str, ranks: str = "3") -> Iterator[subprocess.Popen[str]]:
    """`ciranda run` of the program; it is ended with the context."""
    (folder / "data.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "ciranda.launch.cli", "run", "-np", ranks, "--output-dir", "out",
               "--stall-warning-seconds", "1", *options, sys.executable, "data.py", how]  # fmt: skip
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.send_signal(signal.SIGTERM)


def line_about_rank_1(process: subprocess.Popen[str]) -> str:
    """The first line of the launcher that says where rank 1 stands."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("ciranda: rank 1 (localhost): "):
            return line.removeprefix("ciranda: rank 1 (localhost): ").rstrip()
    raise AssertionError("the job has ended")


def stall_of_rank(folder: Path, rank: int) -> dict[str, Any]:
    """What its file says, which is written once the counters of all ranks have come."""
    path = folder / f"out/rank.{rank}/stall.json"
    until(path.exists, what=str(path))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize("how", ["c", "c with gil", "lock"])
def test_where_a_rank_stands_in_c_or_at_a_lock(tmp_path: Path, how: str) -> None:
    with job(tmp_path, how) as process:
        assert line_about_rank_1(process) == f"load_batch, data.py:{LINE_OF[how]}"
        stacks = (tmp_path / "out/rank.1/stacks.txt").read_text()
        assert f"line {LINE_OF[how]} in load_batch" in stacks
        assert "in <module>" in stacks
        assert "_reduced" in (tmp_path / "out/rank.0/stacks.txt").read_text(), "those of all ranks are kept"
        stalls = [stall_of_rank(tmp_path, rank) for rank in range(3)]
        assert [stall["is_waited_for"] for stall in stalls] == [False, True, False]
        assert [stall["waited_for"] for stall in stalls] == [[1]] * 3
        assert [stall["counters"]["waiting"] for stall in stalls] == [1, 0, 1], "calls that wait"
        assert "'second' has waited" in stalls[0]["warning"]
        assert stalls[1]["where"] == f"load_batch, data.py:{LINE_OF[how]}"
        main = stalls[1]["threads"][0]
        assert main["frames"][0] == {"function": "load_batch", "file": ANY, "line": LINE_OF[how]}
        assert main["frames"][-1]["function"] == "<module>"


@pytest.mark.parametrize("how", ["loop", "busy threads"])
def test_a_rank_that_was_only_slow_goes_on(tmp_path: Path, how: str) -> None:
    with job(tmp_path, how) as process:
        said = line_about_rank_1(process)
        assert re.match(r"(load_batch|compute), data\.py:\d+", said)
        (tmp_path / "go").touch()
        out, _ = process.communicate()
        assert process.returncode == 0
        assert out.count("done") == 3


def test_a_stopped_rank(tmp_path: Path) -> None:
    with job(tmp_path, "stopped") as process:
        assert line_about_rank_1(process).startswith("stopped by a signal")


def test_warnings_in_json_are_understood(tmp_path: Path) -> None:
    with job(tmp_path, "lock", "--log-format", "json") as process:
        assert line_about_rank_1(process) == f"load_batch, data.py:{LINE_OF['lock']}"
        assert "'second' has waited" in stall_of_rank(tmp_path, 0)["warning"]


def test_behind_a_shell(tmp_path: Path) -> None:
    with job(tmp_path, "lock", "sh", "-c", '"$0" "$@"; exit $?') as process:
        assert line_about_rank_1(process) == f"load_batch, data.py:{LINE_OF['lock']}"


def test_the_last_lines_are_about_the_rank_that_others_waited_for(tmp_path: Path) -> None:
    with job(tmp_path, "lock", "--stall-shutdown-seconds", "2") as process:
        _, err = process.communicate()
    assert process.returncode == 1
    last = err.rstrip().splitlines()[-1]
    assert last == f"ciranda: others waited for rank 1 (localhost): load_batch, data.py:{LINE_OF['lock']}"


def test_an_interrupted_job_says_whom_others_waited_for(tmp_path: Path) -> None:
    with job(tmp_path, "c") as process:
        line_about_rank_1(process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert re.search(rf"\d+ s ago others waited for rank 1 \(localhost\): load_batch, data\.py:{LINE_OF['c']}\n", err)


@pytest.mark.netns
@pytest.mark.ssh
def test_a_rank_on_another_host(hosts: netns.Hosts, tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text(PROGRAM)
    command = [*hosts[0].enter, sys.executable, "-m", "ciranda.launch.cli", "run", "--ssh-config",
               str(hosts.ssh_config), "-H", "hostA:1,hostB:1,hostC:1", "--output-dir", str(tmp_path / "out"),
               "--stall-warning-seconds", "1", sys.executable, str(tmp_path / "data.py"), "c"]  # fmt: skip
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = next(line for line in process.stderr if line.startswith("ciranda: rank 1 "))
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
    assert found == f"ciranda: rank 1 (hostB): load_batch, data.py:{LINE_OF['c']}\n"
    assert "in load_batch" in (tmp_path / "out/rank.1/stacks.txt").read_text()


def test_a_place_of_an_elastic_job_has_another_number(tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text(ELASTIC)
    command = [sys.executable, "-m", "ciranda.launch.cli", "run", "--elastic", "-np", "2", "--min-np", "2",
               "--output-dir", "out", "--stall-warning-seconds", "1", sys.executable, "data.py"]  # fmt: skip
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        try:
            stalls = [stall_of_rank(tmp_path, place) for place in range(2)]
            assert [stall["is_waited_for"] for stall in stalls] == [True, False]
            assert stalls[0]["where"].startswith("load_batch, data.py:")
            assert [stall["counters"]["world_rank"] for stall in stalls] == [1, 0]
            (call,) = stalls[1]["calls"]
            assert [missing["rank"] for missing in call["missing"]] == [1]
            facts = subprocess.run([sys.executable, "-m", "ciranda.launch.cli", "report", "out", "--json", "-"],
                                   cwd=tmp_path, check=True, capture_output=True, text=True).stdout  # fmt: skip
            said = [advice["text"] for advice in json.loads(facts)["advice"]]
            assert any(
                "rank 1 has not: it made 'first' last, and stood at load_batch, data.py:" in each for each in said
            )
            (tmp_path / "go").touch()
            assert process.wait() == 0
        finally:
            process.terminate()


def test_a_program_that_is_no_rank_of_a_world_has_no_stack(tmp_path: Path) -> None:
    """What can be told of it comes from /proc."""
    from ciranda.launch.stacks import take

    with subprocess.Popen(["sleep", "100"]) as process:
        while Path(f"/proc/{process.pid}/comm").read_text() != "sleep\n":  # until it has been loaded
            time.sleep(0.01)
        ((rank, where, _),) = take({4: process.pid}, use_py_spy=False)
        process.kill()
    assert rank == 4
    assert where.startswith("no stack, since it has not called ciranda.init(); sleep ")


def test_a_zombie() -> None:
    from ciranda.launch.stacks import take

    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    ((_, where, _),) = take({0: process.pid}, use_py_spy=False)
    process.wait()
    assert where == "its process has ended, but its parent has not taken note"
