"""The main job proves a right training right, and a wrong one wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits.py"

# Every rank goes its own way: nothing is averaged.
BROKEN = f"""
import runpy, sys
import ciranda.torch
ciranda.torch.DistributedOptimizer = lambda optimizer, named_parameters: optimizer
sys.argv[0] = {str(EXAMPLE)!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""

pytestmark = pytest.mark.multiprocess


def run(np: int, *command: str) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    launch = [sys.executable, "-m", "ciranda.launch.cli", "run", "-np", str(np), sys.executable, *command]
    return subprocess.run(launch, env=environment, check=False, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("np", [2, 3])
def test_digits_proves_its_result(np: int, tmp_path: Path) -> None:
    done = run(np, str(EXAMPLE), "--epochs", "4", "--output-dir", str(tmp_path / "new folder"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"the parameters of all {np} ranks are the same bits" in done.stdout
    assert "within fp32 rounding" in done.stdout
    assert "0.000e+00 (bit for bit)" in done.stdout
    assert (tmp_path / "new folder" / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_digits_says_when_the_result_is_wrong(tmp_path: Path) -> None:
    done = run(2, "-c", BROKEN, "--epochs", "2", "--output-dir", str(tmp_path))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "ranks are DIFFERENT" in done.stdout
    assert "BEYOND fp32 rounding" in done.stdout
