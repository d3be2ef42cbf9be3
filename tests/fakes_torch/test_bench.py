"""`ciranda bench --device cuda` on the fake GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch_cuda
from typer.testing import CliRunner

from ciranda.bench.cli import app

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(600)]


def run(*options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **torch_cuda.environment(), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "ciranda.launch.cli", "bench", *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def rows_of(tmp_path: Path, *options: str) -> tuple[list[dict[str, Any]], str]:
    """What was measured of 64 and 4096 bytes, with what every table has; and the table."""
    file = tmp_path / "results.json"
    sized = ["-b", "64", "-e", "4K", "-f", "64", "--seconds", "0", "-w", "1", "--json", str(file)]
    done = run(*options, "--device", "cuda", "-np", "2", *sized)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(file.read_text(encoding="utf-8"))
    assert results["meta"]["device"] == "1 x fake 0"
    assert "# 1 x fake 0, torch" in done.stdout
    assert [row["n_bytes"] for row in results["rows"]] == [64, 4096]
    for row in results["rows"]:
        assert row["systems"]["ciranda"]["n_wrong"] == 0
        assert row["systems"]["ciranda"]["busbw"] > 0
    return results["rows"], done.stdout


def test_results_on_gpus_are_checked_and_timed(tmp_path: Path) -> None:
    rows_of(tmp_path, "allreduce", "--op", "average")


@pytest.mark.usefixtures("kernels_of_gpus")
def test_the_way_of_each_size_is_explained(tmp_path: Path) -> None:
    rows, table = rows_of(tmp_path, "allgather", "--dtype", "int32", "--explain")
    why = "all ranks share a host's memory, and have kernels on their GPUs"
    assert [(row["way"], row["why"]) for row in rows] == [("peer", why)] * 2
    assert [line.split()[2] for line in table.splitlines() if line.endswith(why)] == ["peer"] * 2


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--device", "tpu"], "there is no device 'tpu': choose from cpu, cuda"),
        (["--device", "cuda", "--profile"], "--device cuda is measured without --profile"),
        (["--device", "cuda", "--dtype", "uint16"], "torch computes nothing with uint16 on GPUs"),
    ],
)
def test_what_cannot_be_measured_is_refused(options: list[str], reason: str) -> None:
    done = CliRunner().invoke(app, options)
    assert done.exit_code == 2
    assert reason in " ".join(done.output.replace("│", " ").split()), done.output
