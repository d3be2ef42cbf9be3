"""Lightning: each rank is itself and trains its share, whoever starts it and whatever the backend."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import assert_trained_together, run, run_losing_one


@pytest.mark.parametrize("launcher", ["ciranda run", "torchrun", "nothing"])
@pytest.mark.parametrize("backend", ["gloo", "ciranda"])
def test_trains_as_one_process_does(launcher: str, backend: str, tmp_path: Path) -> None:
    """Started by nothing, Lightning starts the second rank itself."""
    job = run(launcher, "lightning", tmp_path, backend=backend)
    assert_trained_together(job, backend)
    if backend == "ciranda":
        assert [job.reports[rank]["world"] for rank in (0, 1)] == [[0, 2, 0, 2], [1, 2, 1, 2]]


def test_takes_a_process_group_that_is_there(tmp_path: Path) -> None:
    job = run("ciranda run", "lightning", tmp_path, backend="ciranda", chosen_by="init first")
    assert_trained_together(job, "ciranda")


def test_an_allocation_of_slurm_around_the_launcher_is_not_taken_for_the_job(tmp_path: Path) -> None:
    """In a batch script Slurm's variables describe the script's one process; Lightning believes them before torch's."""
    slurm = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NAME": "train",
        "SLURM_NTASKS": "2",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
    }
    around = {f"environ_{name}": value for name, value in slurm.items()}
    job = run("ciranda run", "lightning", tmp_path, **around)
    assert_trained_together(job, "gloo")


def test_goes_on_without_a_rank_in_an_elastic_job(tmp_path: Path) -> None:
    lines = [line for line in run_losing_one("lightning", tmp_path) if line.startswith("20 ")]
    assert len(lines) in (2, 3), "the killed one is back, or training has ended without it"
    assert len(set(lines)) == 1, "the ranks differ"
