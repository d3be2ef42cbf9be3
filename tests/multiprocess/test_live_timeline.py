"""`ciranda timeline`: the calls of a job that runs already, which goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import netns
import psutil
import pytest
from launch_support import until
from traces import Trace

from ciranda.launch import record_file

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

# Rank 0 of two dies once it is told to.
_ELASTIC = """
import os, signal, time
import numpy as np
import ciranda as hvd
from ciranda._frameworks.objects import broadcast_object
from ciranda.elastic import ObjectState, run_fn

hvd.init()

def train(state):
    is_over = 0.0
    while not is_over:
        if hvd.rank() == 0 and os.path.exists(__file__ + ".kill"):
            os.unlink(__file__ + ".kill")
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.allreduce(np.ones(1000, np.float32), name="grad")
        hvd.step()
        is_over = hvd.allreduce(np.float32(os.path.exists(__file__ + ".over")), name="over", op=hvd.Max)
        time.sleep(0.001)
        state.commit()

run_fn(train, lambda: None)(ObjectState(broadcast_object, hvd.rank))
"""


class Job:
    """Two ranks that make steps until they are told to end."""

    def __init__(self, folder: Path, *options: str, program: str = _STEPS, enter: Sequence[str] = ()) -> None:
        """`enter`: what comes before a command for it to run on the launcher's host."""
        (folder / "steps.py").write_text(program)
        self._folder = folder
        self._enter = enter
        self._environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
        command = [*self._ciranda("run", *(options or ("-np", "2"))), sys.executable, str(folder / "steps.py")]
        self._process = subprocess.Popen(command, cwd=folder, env=self._environment, stdout=subprocess.DEVNULL)

    def _ciranda(self, *arguments: str) -> list[str]:
        return [*self._enter, str(Path(sys.executable).with_name("ciranda")), *arguments]

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        command = self._ciranda(*arguments)
        return subprocess.Popen(
            command, cwd=self._folder, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        with self.begin(*arguments) as asking:
            said, warned = asking.communicate()
        return subprocess.CompletedProcess(arguments, asking.returncode, said, warned)

    def n_recorded(self) -> int:
        """How many entries the files of both ranks have at least, which they write to without a name; 0 without."""
        try:
            found = psutil.Process(self._process.pid).children(recursive=True)
            ranks = [each for each in found if str(self._folder / "steps.py") in each.cmdline()[1:2]]
            return min(map(_n_entries, ranks)) if len(ranks) == 2 else 0
        except (OSError, psutil.Error):  # one has ended meanwhile, or has closed a file
            return 0

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


def _n_entries(process: psutil.Process) -> int:
    files = [path for path in Path(f"/proc/{process.pid}/fd").iterdir() if _is_of_records(os.readlink(path))]
    return max((path.stat().st_size // record_file.N_BYTES for path in files), default=0)


def _is_of_records(link: str) -> bool:
    return link.startswith(f"{tempfile.gettempdir()}/") and link.endswith("(deleted)")


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
        assert {(each["args"]["bytes"], each["args"]["dtype"]) for each in calls} == {(4000, "float32")}
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


def test_the_worlds_of_an_elastic_job(tmp_path: Path) -> None:
    """A rank that is lost, one that goes on, and one that is started meanwhile."""
    job = Job(tmp_path, "--elastic", "-np", "2", "--min-np", "1", program=_ELASTIC)
    try:
        until(job.makes_steps, what="steps")
        recording = job.begin("timeline", "live.json")
        until(lambda: job.n_recorded() > 100, what="records")
        before = job.n_recorded()
        (tmp_path / "steps.py.kill").touch()
        until(lambda: not (tmp_path / "steps.py.kill").exists(), what="a rank's end")
        until(lambda: job.n_recorded() > before + 1000, what="records of another process")
        recording.send_signal(signal.SIGINT)
        _, said = recording.communicate()
        assert recording.returncode == 0, said
        assert job.end() == 0
    finally:
        job.kill()
    trace = Trace(tmp_path / "live.json")
    assert trace.processes == {place: f"[{place}] (localhost)" for place in range(2)}
    for place, (first, last) in enumerate((("rank 0 of 2", "rank 1 of 2"), ("rank 1 of 2", "rank 0 of 2"))):
        worlds = [span for span in trace.spans[place] if span["cat"] == "world"]
        assert (worlds[0]["name"], worlds[-1]["name"]) == (first, last)
        assert len(worlds) > 1
        assert trace.calls_within(place, worlds[0])
    assert trace.about["lost_calls"] == {}


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
