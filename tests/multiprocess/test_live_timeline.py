"""`ciranda timeline`: the calls of a job that runs already, which goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import netns
import pytest
from launch_support import until

pytestmark = pytest.mark.multiprocess

_STEPS = """
import os, time
import numpy as np
import ciranda as hvd

hvd.init()
one = np.ones(1000, np.float32)
is_over = 0.0
while not is_over:
    if hvd.rank() == 1:
        time.sleep(0.01)
    hvd.allreduce(one, name="grad")
    hvd.step()
    is_over = hvd.allreduce(np.float32(os.path.exists(__file__ + ".over")), name="over", op=hvd.Max)
"""


class Job:
    """Two ranks that make steps until they are told to end."""

    def __init__(self, folder: Path, *options: str, enter: Sequence[str] = ()) -> None:
        """`enter`: what comes before a command for it to run on the launcher's host."""
        (folder / "steps.py").write_text(_STEPS)
        self._folder = folder
        self._enter = enter
        self._environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
        command = [*self._ciranda("run", *(options or ("-np", "2"))), sys.executable, str(folder / "steps.py")]
        self._process = subprocess.Popen(command, cwd=folder, env=self._environment, stdout=subprocess.DEVNULL)

    def _ciranda(self, *arguments: str) -> list[str]:
        return [*self._enter, str(Path(sys.executable).with_name("ciranda")), *arguments]

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = self._ciranda(*arguments)
        return subprocess.run(
            command, cwd=self._folder, env=self._environment, capture_output=True, text=True, check=False
        )

    def makes_steps(self) -> bool:
        found = self.ask("top", "--json", "--interval", "0.1")
        return found.returncode == 0 and all(row["steps_per_second"] for row in json.loads(found.stdout))

    def timeline(self, *options: str) -> dict[str, Any]:
        done = self.ask("timeline", str(self._folder / "live.json"), *options)
        assert done.returncode == 0, done.stderr
        whole: dict[str, Any] = json.loads((self._folder / "live.json").read_text())
        return whole

    def end(self) -> int:
        (self._folder / "steps.py.over").touch()
        return self._process.wait(60)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def _check(whole: dict[str, Any], n_steps: int) -> None:
    events = whole["traceEvents"]
    assert whole["otherData"]["lost_calls"] == {}
    steps = {rank: [each for each in events if each.get("cat") == "step" and each["pid"] == rank] for rank in (0, 1)}
    assert min(map(len, steps.values())) >= n_steps
    numbers = [int(each["name"].split()[1]) for each in steps[0]]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    for rank in (0, 1):
        calls = [each for each in events if each["name"] == "allreduce grad" and each["pid"] == rank]
        assert len(calls) >= n_steps
        assert {each["args"]["bytes"] for each in calls} == {4000}
    waits = [each["args"]["waited_us"] for each in events if each["name"] == "allreduce grad" and each["pid"] == 0
             and "waited_us" in each["args"]]  # fmt: skip
    assert max(waits) > 1000


def test_a_job_is_recorded_while_it_runs_and_goes_on(tmp_path: Path) -> None:
    job = Job(tmp_path)
    try:
        until(job.makes_steps, what="steps")
        _check(job.timeline("--steps", "5"), 5)
        stacks = job.ask("stacks", "--short")
        assert "steps.py" in stacks.stdout, stacks
        _check(job.timeline("--steps", "3"), 3)
        assert job.end() == 0
    finally:
        job.kill()


@pytest.mark.netns
@pytest.mark.ssh
def test_hosts_whose_clocks_are_compared(hosts: netns.Hosts, tmp_path: Path) -> None:
    options = ("--ssh-config", str(hosts.ssh_config), "-H", "hostA:1,hostB:1", "--start-timeout", "120")
    job = Job(tmp_path, *options, enter=hosts[0].enter)
    try:
        until(job.makes_steps, what="steps")
        whole = job.timeline("--steps", "5")
        assert job.end() == 0
    finally:
        job.kill()
    _check(whole, 5)
    assert {*whole["otherData"]["hosts"]} == {"hostA", "hostB"}
    assert whole["otherData"]["clock_bound_us"] > 0


def test_a_job_that_is_recorded_already_is_refused(tmp_path: Path) -> None:
    job = Job(tmp_path, "-np", "2", "--timeline", "all.json")
    try:
        until(job.makes_steps, what="steps")
        refused = job.ask("timeline", "live.json", "--seconds", "0")
        assert refused.returncode == 2
        assert "recorded already, as --timeline" in refused.stderr
        assert job.end() == 0
    finally:
        job.kill()
