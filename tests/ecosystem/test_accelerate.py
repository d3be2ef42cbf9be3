"""Accelerate: each rank is itself and trains its share, whoever starts it and whatever the backend."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import BIN, PROGRAMS, assert_trained_together, run


@pytest.mark.parametrize("launcher", ["ciranda run", "horovodrun", "torchrun"])
@pytest.mark.parametrize("backend", ["gloo", "ciranda"])
def test_trains_as_one_process_does(launcher: str, backend: str, tmp_path: Path) -> None:
    chosen_by = "init first" if backend == "ciranda" else "default"
    job = run(launcher, "accelerate", tmp_path, backend=backend, chosen_by=chosen_by)
    assert_trained_together(job, backend)
    assert [report["gathered"] for report in job.reports.values()] == [[0, 1]] * 2


def test_its_list_of_backends_has_no_ciranda(tmp_path: Path) -> None:
    job = run("ciranda run", "accelerate", tmp_path, backend="ciranda", chosen_by="kwargs")
    assert job.exit_code == 1
    assert "Your assigned backend ciranda is not available, please use gloo" in job.errors


@pytest.mark.parametrize("launcher", ["ciranda run", "torchrun"])
def test_it_must_be_told_that_it_is_to_use_cpus(launcher: str, tmp_path: Path) -> None:
    """What the page warns of: each rank believes to be alone."""
    job = run(launcher, "accelerate", tmp_path, chosen_by="not said")
    assert job.exit_code == 0
    assert [report["size"] for report in job.reports.values()] == [1]


def test_its_own_launcher_starts_one_process_on_cpus(tmp_path: Path) -> None:
    job = run("accelerate launch", "accelerate", tmp_path)
    assert job.exit_code == 0
    assert [report["size"] for report in job.reports.values()] == [1]


def test_the_ranks_that_are_left_in_an_elastic_job_divide_the_samples_anew(tmp_path: Path) -> None:
    job = [str(BIN / "ciranda"), "run", "--elastic", "-np", "3", "--min-np", "2", "--no-prefix", sys.executable]
    command = [*job, str(PROGRAMS / "elastic_accelerate.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("has failed: killed by SIGKILL") == 1
    assert {line for line in done.stdout.splitlines() if line.startswith("[")} == {json.dumps([[1] * 24] * 3)}
