"""``ciranda run --timeline``: the calls of all ranks in one file, also of a rank that was killed, and who came last."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import netns
import pytest
from traces import Trace

from ciranda.report import facts_of, read

pytestmark = pytest.mark.multiprocess

DAY = 86400
RUN = [sys.executable, "-m", "ciranda.launch.cli", "run"]

# The rank that argv names comes last to each call "grad": it waits until the others have told that they are there.
SLEEPER = """
import os, sys, time
import numpy as np
import ciranda

ciranda.init()
folder, last = sys.argv[1], int(sys.argv[2])
others = [rank for rank in range(ciranda.size()) if rank != last]
for step in range(6):
    there = [os.path.join(folder, f"{step}.{rank}") for rank in others]
    if ciranda.rank() == last:
        while not all(map(os.path.exists, there)):
            time.sleep(0.001)
        time.sleep(0.02)  # what they have handed over is there as well
    handle = ciranda.allreduce_async(np.ones(4, "float32"), name="grad")
    if ciranda.rank() != last:
        open(os.path.join(folder, f"{step}.{ciranda.rank()}"), "w").close()
    ciranda.synchronize(handle)
    ciranda.step()
"""

# Rank 1 dies once the file for its records has this many.
KILLED = """
import os, signal
import numpy as np
import ciranda

ciranda.init()
while True:
    has_records = os.path.getsize(os.environ["CIRANDA_RECORDS_FILE"]) > 100 * 80
    all_have = ciranda.allreduce(np.array([has_records], np.int32), op=ciranda.Min, name="x")
    if ciranda.rank() == 1 and all_have[0]:
        os.kill(os.getpid(), signal.SIGKILL)
"""

# Rank 0 of three dies, once, when the file for its records has some. Then steps count in a world of three, until there
# are enough.
ELASTIC = """
import os, signal
import numpy as np
import ciranda
from ciranda._frameworks.objects import broadcast_object
from ciranda.elastic import ObjectState, run_fn

ciranda.init()

def train(state):
    while state.step < 60:
        ciranda.allreduce(np.ones(4), name="x")
        ciranda.step()
        if ciranda.rank() == 0 and os.path.getsize(os.environ["CIRANDA_RECORDS_FILE"]) > 50 * 80:
            try:
                open("killed", "x").close()
                os.kill(os.getpid(), signal.SIGKILL)
            except FileExistsError:
                pass
        state.step += ciranda.size() == 3 and os.path.exists("killed")
        state.commit()

run_fn(train, lambda: None)(ObjectState(broadcast_object, ciranda.rank, step=0))
"""

TORCH = """
import torch
import ciranda.torch as hvd

hvd.init()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""


PROFILED = """
import time
import torch
from torch.profiler import ProfilerActivity, profile
import ciranda.torch as hvd

hvd.init()
hvd.allreduce(torch.ones(4), name="before")
with profile(activities=[ProfilerActivity.CPU]) as taken:
    if hvd.rank() == 1:
        time.sleep(0.2)
    hvd.allreduce(torch.ones(4), name="grad")
taken.export_chrome_trace(f"profile.{hvd.rank()}.json")
"""


def run(folder: Path, program: str, *options: str, args: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """`ciranda run` of a program, in a folder for what it writes."""
    script = folder / "program.py"
    script.write_text(program)
    command = [*RUN, *options, sys.executable, str(script), *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_arrows_lead_from_the_last_rank(tmp_path: Path) -> None:
    done = run(tmp_path, SLEEPER, "-np", "3", "--timeline", "all.json", args=(str(tmp_path), "1"))
    assert done.returncode == 0, done.stderr
    assert "ciranda: timeline of 3 ranks, 18 calls: all.json (open it in https://ui.perfetto.dev)\n" in done.stderr
    trace = Trace(tmp_path / "all.json")
    assert trace.processes == {rank: f"rank {rank} (localhost)" for rank in range(3)}
    assert all(trace.tracks[rank, 0] == "steps" for rank in range(3))
    assert any(name == "lane 0" for (rank, _), name in trace.tracks.items() if rank == 1)
    for rank in range(3):
        calls = trace.calls(rank)
        assert [call["name"] for call in calls] == ["allreduce grad"] * 6
        for call in calls:
            assert call["args"]["tensor"] == "grad"
            assert call["args"]["bytes"] == 16
            assert call["args"]["dtype"] == "float32"
            assert call["args"]["last"] == 1
            stages = [stage["name"] for stage in trace.inside(rank, call)]
            assert ("wait for rank 1" in stages) == (rank != 1)
            assert ("waited_us" in call["args"]) == (rank != 1)
        assert [span["name"] for span in trace.spans[rank] if span["cat"] == "step"] == [
            f"step {step}" for step in range(2, 7)
        ]
    assert sorted((begin[0], end[0]) for begin, end in trace.arrows) == [(1, 0)] * 6 + [(1, 2)] * 6
    assert trace.about["clock_bound_us"] == 0, "the ranks share a clock"
    assert trace.about["lost_calls"] == {}


def test_some_steps_only(tmp_path: Path) -> None:
    options = ("-np", "2", "--timeline", "some.json.gz", "--timeline-steps", "2:4")
    done = run(tmp_path, SLEEPER, *options, args=(str(tmp_path), "0"))
    assert done.returncode == 0, done.stderr
    trace = Trace(tmp_path / "some.json.gz")
    for rank in range(2):
        assert len(trace.calls(rank)) == 2
        steps = [span for span in trace.spans[rank] if span["cat"] == "step"]
        assert [step["name"] for step in steps] == ["step 3", "step 4"]
        for step, call in zip(steps, trace.calls(rank), strict=True):
            assert step["ts"] <= call["ts"] <= call["ts"] + call["dur"] <= step["ts"] + step["dur"]
    assert len(trace.arrows) == 2


def test_a_job_of_fewer_steps(tmp_path: Path) -> None:
    options = ("-np", "1", "--timeline", "none.json", "--timeline-steps", "9:")
    done = run(tmp_path, SLEEPER, *options, args=(str(tmp_path), "0"))
    assert done.returncode == 0
    assert "the timeline has nothing of ranks 0, which have ended fewer than 9 steps" in done.stderr
    assert Trace(tmp_path / "none.json").about["ranks_without_records"] == [0]


def test_a_rank_that_was_killed(tmp_path: Path) -> None:
    done = run(tmp_path, KILLED, "-np", "2", "--timeline", "killed.json")
    assert done.returncode == 128 + 9
    assert done.stderr.rstrip().splitlines()[-1].startswith("ciranda: rank 1 on localhost failed first")
    trace = Trace(tmp_path / "killed.json")
    for rank in range(2):
        assert len([call for call in trace.calls(rank) if "error" not in call["args"]]) >= 90


def test_an_elastic_job(tmp_path: Path) -> None:
    done = run(tmp_path, ELASTIC, "--elastic", "-np", "3", "--min-np", "2", "--timeline", "elastic.json")
    assert done.returncode == 0, done.stderr
    trace = Trace(tmp_path / "elastic.json")
    assert trace.processes == {place: f"[{place}] (localhost)" for place in range(3)}
    worlds = {place: [span["name"] for span in trace.spans[place] if span["cat"] == "world"] for place in range(3)}
    # Rank 0 dies while the others end the same call: who of them has committed its step is the next rank 0.
    first, second = sorted((1, 2), key=lambda place: worlds[place][1])
    assert worlds == {
        0: ["rank 0 of 3", "rank 2 of 3"],
        first: [f"rank {first} of 3", "rank 0 of 2", "rank 0 of 3"],
        second: [f"rank {second} of 3", "rank 1 of 2", "rank 1 of 3"],
    }
    for place in range(3):
        for world in (span for span in trace.spans[place] if span["cat"] == "world"):
            calls = [call for call in trace.calls_within(place, world) if "last" in call["args"]]
            assert calls, f"in the world {world} nobody came last"
            assert {call["args"]["last"] for call in calls} <= set(range(int(world["name"][-1])))


def test_an_interrupted_job(tmp_path: Path) -> None:
    program = KILLED.replace("os.kill(os.getpid(), signal.SIGKILL)", "print('now', flush=True)")
    (tmp_path / "program.py").write_text(program)
    command = [*RUN, "-np", "2", "--timeline", "ended.json", sys.executable, "program.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        process.stdout.read()
    assert process.returncode == 128 + 15
    assert len(Trace(tmp_path / "ended.json").calls(0)) >= 90


def test_a_training_script(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = run(tmp_path, TORCH, "-np", "2", "--timeline", "torch.json")
    assert done.returncode == 0, done.stderr
    trace = Trace(tmp_path / "torch.json")
    for rank in range(2):
        assert sum("DistributedOptimizer" in call["name"] for call in trace.calls(rank)) >= 3
        assert [span["name"] for span in trace.spans[rank] if span["cat"] == "step"] == ["step 2", "step 3"]


def test_beside_torch_profiles(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = run(tmp_path, PROFILED, "-np", "2", "--timeline", "all.json")
    assert done.returncode == 0, done.stderr
    command = [sys.executable, "-m", "ciranda.launch.cli", "merge", "all.json", "0=profile.0.json", "1=profile.1.json"]
    subprocess.run([*command, "-o", "both.json.gz"], cwd=tmp_path, check=True, capture_output=True)
    events = json.loads(gzip.decompress((tmp_path / "both.json.gz").read_bytes()))["traceEvents"]
    process = {event["args"]["name"]: event["pid"] for event in events if event["name"] == "process_name"}
    for rank in range(2):
        (call,) = [each for each in events if each["name"] == "allreduce grad" and each["pid"] == rank]
        (span,) = [each for each in events if each["name"] == "ciranda:allreduce"
                   and each["pid"] == process[f"rank {rank}: {Path(sys.executable).name}"]]  # fmt: skip
        # Far less than what rank 0 waits in it, and more than torch errs by.
        assert span["ts"] - 50_000 < call["ts"]
        assert call["ts"] + call["dur"] < span["ts"] + span["dur"] + 50_000


def test_beside_the_timeline_of_rank_0(tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    options = ("-np", "2", "--timeline", "all.json", "--env", f"HOROVOD_TIMELINE={own}")
    done = run(tmp_path, SLEEPER, *options, args=(str(tmp_path), "0"))
    assert done.returncode == 0, done.stderr
    events = json.loads(own.read_text())
    assert sum(event["name"] == "ALLREDUCE" for event in events) == 6
    assert len(Trace(tmp_path / "all.json").calls(0)) == 6


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--timeline", "no/such.json"), "the timeline cannot be written to no/such.json: No such file or directory"),
        (("--timeline-steps", "3:9"), "--timeline-steps is for --timeline or --output-dir"),
        (("--timeline-steps", "3:9", "--output-dir", "out", "--elastic"), "--timeline-steps of an elastic job is for"),
    ],
)
def test_what_cannot_be_done_is_said_before_ranks_start(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    done = run(tmp_path, "open('started', 'w')", "-np", "2", *options)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "started").exists()


def can_set_clocks() -> bool:
    """Whether a process here can get a monotonic clock that is a day ahead."""
    clock = [sys.executable, "-c", "import time; print(time.monotonic())"]
    ahead = ["unshare", "--time", "--monotonic", str(DAY), "--boottime", str(DAY), *clock]
    now, then = (subprocess.run(command, capture_output=True, text=True, check=False) for command in (clock, ahead))
    return then.returncode == 0 and float(then.stdout) > float(now.stdout) + DAY / 2


@pytest.mark.netns
@pytest.mark.ssh
def test_hosts_whose_clocks_are_days_apart(hosts: netns.Hosts, tmp_path: Path) -> None:
    if not can_set_clocks():
        pytest.skip("this kernel, or unshare, makes no time namespaces")
    python = tmp_path / "python"
    python.write_text(
        f"#!/bin/sh\ncase $(hostname) in hostB) ahead={DAY} ;; *) ahead={2 * DAY} ;; esac\n"
        f'exec unshare --time --monotonic $ahead --boottime $ahead {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    (tmp_path / "program.py").write_text(SLEEPER)
    command = [*hosts[0].enter, *RUN, "--ssh-config", str(hosts.ssh_config), "-H", "hostA:1,hostB:1,hostC:1",
               "--remote-python", str(python), "--timeline", str(tmp_path / "all.json"),
               "--output-dir", str(tmp_path / "out"),
               sys.executable, str(tmp_path / "program.py"), str(tmp_path), "1"]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    trace = Trace(tmp_path / "all.json")
    bound = trace.about["clock_bound_us"]
    assert 0 < bound < DAY * 1e6
    assert "clocks of hosts within" in done.stderr
    assert set(trace.about["hosts"]) == {"hostA", "hostB", "hostC"}
    for calls in zip(*(trace.calls(rank, "grad") for rank in range(3)), strict=True):
        assert max(call["ts"] for call in calls) <= min(call["ts"] + call["dur"] for call in calls) + bound
        if all("waited_us" in calls[rank]["args"] for rank in (0, 2)):
            assert {call["args"]["last"] for call in calls} == {1}
    assert (1, 0) in {(begin[0], end[0]) for begin, end in trace.arrows}
    facts = facts_of(read(tmp_path / "out"))
    assert [host["host"] for host in facts["job"]["hosts"]] == ["hostA", "hostB", "hostC"]
    assert facts["recorded"]["clock_bound_seconds"] == pytest.approx(bound / 1e6)
    assert facts["recorded"]["steps"] == 5
    first = facts["recorded"]["ranks"][0]
    assert max(first["waited_for"], key=first["waited_for"].__getitem__) == "1"
