"""`ciranda report` on real jobs: its figures are what their programs did."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.multiprocess

CIRANDA = [sys.executable, "-m", "ciranda.launch.cli"]
NAME = "<img src=x onerror=alert(1)>&\"'</script>"

# Rank 1 sleeps in each step, once the others have told that they have submitted.
SLEEPER = """
import os, sys, time
import numpy as np
import ciranda

ciranda.init()
folder = sys.argv[1]
others = [rank for rank in range(ciranda.size()) if rank != 1]
for step in range(10):
    there = [os.path.join(folder, f"{step}.{rank}") for rank in others]
    if ciranda.rank() == 1:
        while not all(map(os.path.exists, there)):
            time.sleep(0.001)
        time.sleep(0.05)
    handle = ciranda.allreduce_async(np.ones(1000, "float32"), name="grad")
    if ciranda.rank() != 1:
        open(os.path.join(folder, f"{step}.{ciranda.rank()}"), "w").close()
    ciranda.synchronize(handle)
    ciranda.step()
"""

# Steps, of which rank 1 is late to each, until the launcher has looked at them three times; then rank 1 fails.
FAILING = f"""
import os, sys, time
import numpy as np
import ciranda

ciranda.init()
log, name = sys.argv[1], {NAME!r}
while True:
    n_looks = open(log).read().count('"steps":') // ciranda.size() if ciranda.rank() == 0 else 0
    n_looks = int(ciranda.allreduce(np.array([n_looks]), op=ciranda.Sum, name=name)[0])
    if ciranda.rank() == 1:
        time.sleep(0.05)
        if n_looks >= 3:
            sys.exit("<b>no</b> more & more")
    ciranda.step()
"""

# Rank 1 comes to the second call once the launcher has noted that the other waits.
STUCK = """
import sys, time
import numpy as np
import ciranda

def load_batch(log):
    while '"kind":"stall"' not in open(log).read():
        time.sleep(0.01)

ciranda.init()
ciranda.allreduce(np.ones(1), name="first")
if ciranda.rank() == 1:
    load_batch(sys.argv[1])
ciranda.allreduce(np.ones(1), name="second")
"""

# Steps until the launcher has looked at them twice; rank 1 never comes to the next call.
HANGING = """
import queue, sys, time
import numpy as np
import ciranda

ciranda.init()
n_looks = 0
while n_looks < 2:
    time.sleep(0.02)
    n_looks = open(sys.argv[1]).read().count('"steps":') // ciranda.size() if ciranda.rank() == 0 else 0
    n_looks = int(ciranda.allreduce(np.array([n_looks]), op=ciranda.Sum, name="looks")[0])
    ciranda.step()
if ciranda.rank() == 1:
    queue.Queue().get()
ciranda.allreduce(np.ones(1), name="grad")
"""

FEW_STEPS = """
import numpy as np
import ciranda

ciranda.init()
for _ in range(3):
    ciranda.allreduce(np.ones(1), name="grad")
    ciranda.step()
"""

FULL = """
import errno, os
from ciranda.launch.cli import main
from ciranda.launch.record_file import RecordFile

def append(file, data):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

RecordFile.append = append
main()
"""


class Page(HTMLParser):
    """The text and the tags of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.words = ""
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.words += data


def run(folder: Path, program: str, *options: str, args: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """`ciranda run` of a program, whose output goes to folder/out."""
    script = folder / "program.py"
    script.write_text(program)
    command = [*CIRANDA, "run", "--output-dir", "out", *options, sys.executable, str(script), *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def report(folder: Path, *directories: str) -> tuple[dict[str, Any], Page]:
    """The facts and the page of a job, or of two."""
    command = [*CIRANDA, "report", *directories, "--json", "facts.json", "-o", "page.html"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "facts.json").read_text()), Page(folder / "page.html")


def is_safe(page: Page) -> bool:
    """Whether it asks for nothing and runs nothing."""
    runs_nothing = page.tags.isdisjoint({"img", "script", "link", "iframe"})
    return runs_nothing and page.attributes.isdisjoint({"src", "href", "onerror"})


def test_the_rank_that_sleeps_is_the_one_waited_for(tmp_path: Path) -> None:
    done = run(tmp_path, SLEEPER, "-np", "3", "--timeline-steps", ":", args=(str(tmp_path),))
    assert done.returncode == 0, done.stderr
    facts, page = report(tmp_path, "out")
    assert facts["end"]["how"] == "succeeded"
    assert [rank["steps"] for rank in facts["ranks"]] == [10] * 3
    recorded = facts["recorded"]
    assert (recorded["first_step"], recorded["steps"], recorded["calls"], recorded["lost_calls"]) == (2, 9, 30, 0)
    assert recorded["median_step_seconds"] >= 0.05
    for rank in recorded["ranks"]:
        parts = ("computed_seconds", "waited_seconds", "agreed_seconds", "moved_seconds")
        assert sum(rank[part] for part in parts) == pytest.approx(rank["seconds"])
        if rank["rank"] == 1:
            assert rank["computed_seconds"] >= 9 * 0.05
            assert 0.04 <= rank["median_held_up_seconds"] <= recorded["median_step_seconds"] * 1.1
            assert rank["waited_for"] == {}
        else:
            assert rank["median_held_up_seconds"] == 0
            assert rank["waited_for"]["1"] >= 9 * 0.04
    assert max(facts["ranks"], key=lambda rank: rank["waited_for_seconds"])["rank"] == 1
    # What it did meanwhile is seen by looks, of which so short a job has few.
    assert facts["advice"][0]["text"].startswith("The others wait for rank 1 (localhost); it ")
    (size,) = recorded["sizes"]
    assert (size["collective"], size["dtype"], size["bytes_from"], size["calls"]) == ("allreduce", "float32", 2048, 30)
    assert size["bytes"] == 30 * 4000
    assert recorded["tensors"][0]["name"] == "grad"
    assert is_safe(page)
    assert facts["advice"][0]["text"] in page.words
    assert "waits for others: " in page.words, "the bars say their parts"


def test_a_job_that_failed_and_hostile_names(tmp_path: Path) -> None:
    done = run(tmp_path, FAILING, "-np", "2", args=(str(tmp_path / "out" / "job.jsonl"),))
    assert done.returncode == 1
    facts, page = report(tmp_path, "out")
    assert facts["end"]["how"] == "failed"
    assert facts["end"]["failed"] == {"rank": 1, "host": "localhost", "how": "exit code 1"}
    assert facts["advice"][0]["text"].startswith("Rank 1 (localhost) failed first: exit code 1.")
    assert "rank.1/stderr" in facts["advice"][0]["text"]
    assert facts["recorded"] is None
    assert len(facts["intervals"]) >= 1
    for interval in facts["intervals"]:
        assert all(rank["steps"] >= 0 for rank in interval["ranks"])
    held_up = {rank["rank"]: rank["waited_for_seconds"] / rank["steps"] for rank in facts["ranks"]}
    assert held_up[1] >= 0.005, "of 0.05, in part of which the other may have been late itself"
    (allreduce,) = facts["collectives"]
    assert allreduce["collective"] == "allreduce"
    assert allreduce["calls"] == sum(rank["calls"] for rank in facts["ranks"])
    assert [event["code"] for event in facts["events"] if event["kind"] == "exit" and event["rank"] == 1] == [1]
    assert is_safe(page)
    assert "<b>no</b> more & more" in page.words
    assert not re.search(r"https?:", (tmp_path / "page.html").read_text())


def test_a_job_with_hostile_tensors_and_another(tmp_path: Path) -> None:
    program = f"""
import numpy as np
import ciranda

ciranda.init()
for _ in range(4):
    ciranda.allreduce(np.ones(1 << 10), name={NAME!r})
    ciranda.step()
"""
    for name, setting in (("one", "2"), ("two", "3")):
        (tmp_path / name).mkdir()
        options = ("-np", "2", "--timeline-steps", ":", "--env", f"CIRANDA_NUM_LANES={setting}")
        done = run(tmp_path / name, program, *options)
        assert done.returncode == 0, done.stderr
    facts, page = report(tmp_path, "one/out")
    assert facts["recorded"]["tensors"][0]["name"] == NAME
    assert is_safe(page)
    assert NAME in page.words
    both, page = report(tmp_path, "one/out", "two/out")
    assert {"name": "CIRANDA_NUM_LANES", "first": "2", "second": "3"} in both["differences"]
    figures = {figure["name"]: figure for figure in both["figures"]}
    assert figures["a step"]["change"] == pytest.approx(figures["a step"]["second"] / figures["a step"]["first"])
    assert "allreduce float64 from 8.19 kB" in figures
    assert is_safe(page)
    assert "CIRANDA_NUM_LANES" in page.words


def test_where_a_stuck_rank_stood(tmp_path: Path) -> None:
    options = ("-np", "2", "--stall-warning-seconds", "0.5")
    done = run(tmp_path, STUCK, *options, args=(str(tmp_path / "out" / "job.jsonl"),))
    assert done.returncode == 0, done.stderr
    facts, page = report(tmp_path, "out")
    stalls = [event for event in facts["events"] if event["kind"] == "stall"]
    assert {stall["rank"] for stall in stalls} == {1}
    assert stalls[0]["where"].startswith("load_batch, program.py:")
    assert f"rank 1 (localhost): {stalls[0]['where']}" in page.words
    assert facts["ranks"][0]["stalls"] >= 1
    assert "has waited" in facts["ranks"][0]["warning"]
    assert facts["advice"][0]["text"].endswith("Its stacks are in rank.1/stacks.txt.")
    assert (tmp_path / "out" / "rank.1" / "stacks.txt").exists()
    assert facts["advice"][1]["text"].startswith("The first call that differs is 'second': rank 0 has made it; rank 1 ")
    assert "it made 'first' last, and stood at load_batch, program.py:" in facts["advice"][1]["text"]
    assert [rank["is_waited_for"] for rank in facts["standstill"]["ranks"]] == [False, True]


def test_a_job_that_hangs_and_is_ended(tmp_path: Path) -> None:
    """While it runs and afterwards the page says where, and for how long, and blames nobody for being slow."""
    (tmp_path / "program.py").write_text(HANGING)
    options = ["-np", "2", "--output-dir", "out", "--stall-warning-seconds", "1.5"]
    log = tmp_path / "out" / "job.jsonl"
    program = [sys.executable, "program.py", str(log)]
    with subprocess.Popen([*CIRANDA, "run", *options, *program], cwd=tmp_path) as job:
        try:
            while not _is_looked_at_after_a_warning(log):
                assert job.poll() is None
                time.sleep(0.05)
            facts, page = report(tmp_path, "out")
        finally:
            job.terminate()
    assert facts["end"]["how"] == "running"
    said = facts["advice"][0]["text"]
    assert said.startswith("The job hangs: the others have waited")
    assert "for rank 1 (localhost), which stands at " in said
    assert "program.py:14" in said
    assert f"ciranda stacks {facts['job']['id'][:8]} --ranks 1" in said
    assert "now, all wait for rank 1" in page.words
    ranks = [{name: rank[name] for name in ("seconds", "waited_seconds", "steps")} for rank in facts["ranks"]]
    assert all(rank["waited_seconds"] < rank["seconds"] for rank in ranks), "the hang is in no figure of a rank"
    facts, page = report(tmp_path, "out")
    assert facts["end"]["how"] == "interrupted"
    assert facts["advice"][0]["text"].startswith("The job hung when it ended: the others had waited")
    assert "The others wait for rank 1" not in page.words
    assert facts["end"]["hang"]["seconds"] >= 1.5
    assert [{name: rank[name] for name in ranks[0]} for rank in facts["ranks"]] == ranks


def _is_looked_at_after_a_warning(log: Path) -> bool:
    _, warned, after = log.read_text().partition('"kind":"stall"') if log.exists() else ("", "", "")
    return bool(warned) and '"kind":"counters"' in after


def test_records_that_find_no_room(tmp_path: Path) -> None:
    """They are taken to the launcher's disk, which is full, as far as it knows."""
    (tmp_path / "full.py").write_text(FULL)
    (tmp_path / "program.py").write_text(FEW_STEPS)
    options = ["run", "-np", "2", "--output-dir", "out", "--timeline-steps", ":", sys.executable, "program.py"]
    done = subprocess.run(
        [sys.executable, "full.py", *options], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "warning: not all recorded calls could be kept: No space left on device" in done.stderr
    facts, page = report(tmp_path, "out")
    assert facts["missing"][0].startswith("Not all recorded calls could be kept (No space left on device")
    assert facts["missing"][0] in page.words


def test_a_folder_without_a_job(tmp_path: Path) -> None:
    done = subprocess.run([*CIRANDA, "report", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "give a folder of 'ciranda run --output-dir'" in done.stderr
