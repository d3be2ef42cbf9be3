"""Transformers' Trainer: each rank is itself and trains its share, whoever starts it and whatever the backend."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from jobs import assert_trained_together, parameters, run


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> torch.Tensor:
    """What the same program makes of the same global batches in one process."""
    job = run("nothing", "transformers", tmp_path_factory.mktemp("alone"), n_ranks=1)
    assert job.exit_code == 0, job.errors
    assert job.reports[0]["size"] == 1
    return parameters(job, 0)


@pytest.mark.parametrize("launcher", ["ciranda run", "torchrun"])
@pytest.mark.parametrize("backend", ["gloo", "ciranda"])
def test_trains_as_one_process_does(launcher: str, backend: str, alone: torch.Tensor, tmp_path: Path) -> None:
    chosen_by = "init first" if backend == "ciranda" else "default"
    job = run(launcher, "transformers", tmp_path, backend=backend, chosen_by=chosen_by)
    assert_trained_together(job, backend, alone)


def test_its_ddp_backend_has_no_ciranda(tmp_path: Path) -> None:
    job = run("ciranda run", "transformers", tmp_path, backend="ciranda", chosen_by="ddp_backend")
    assert job.exit_code == 1
    assert "Your assigned backend ciranda is not available, please use gloo" in job.errors
