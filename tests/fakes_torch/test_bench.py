"""`ciranda bench --device cuda` on the fake GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch_cuda
from typer.testing import CliRunner

from ciranda.bench.cli import app

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(600)]


def run(*options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **torch_cuda.environment(), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "ciranda.launch.cli", "bench", *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize(
    ("collective", "options", "sizes"),
    [
        ("allreduce", ["--op", "average"], [64, 4096]),
        ("allgather", ["--dtype", "int32"], [64, 4096]),
    ],
)
def test_results_on_gpus_are_checked_and_timed(
    collective: str, options: list[str], sizes: list[int], tmp_path: Path
) -> None:
    file = tmp_path / "results.json"
    sized = ["-b", "64", "-e", "4K", "-f", "64", "--seconds", "0", "-w", "1", "--json", str(file)]
    done = run(collective, "--device", "cuda", "-np", "2", *options, *sized)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(file.read_text(encoding="utf-8"))
    assert results["meta"]["device"] == "1 x fake 0"
    assert "# 1 x fake 0, torch" in done.stdout
    assert [row["n_bytes"] for row in results["rows"]] == sizes
    for row in results["rows"]:
        assert row["systems"]["ciranda"]["n_wrong"] == 0
        assert row["systems"]["ciranda"]["busbw"] > 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--device", "tpu"], "there is no device 'tpu': choose from cpu, cuda"),
        (["--device", "cuda", "--explain"], "--device cuda is measured without --explain"),
        (["--device", "cuda", "--dtype", "uint16"], "torch computes nothing with uint16 on GPUs"),
    ],
)
def test_what_cannot_be_measured_is_refused(options: list[str], reason: str) -> None:
    done = CliRunner().invoke(app, options)
    assert done.exit_code == 2
    assert reason in " ".join(done.output.replace("│", " ").split()), done.output
