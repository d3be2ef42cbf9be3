"""Accelerate: each rank is itself and trains its share, whoever starts it and whatever the backend."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jobs import assert_trained_together, run, run_losing_one


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
    lines = run_losing_one("accelerate", tmp_path)
    assert {line for line in lines if line.startswith("[")} == {json.dumps([[1] * 24] * 3)}
