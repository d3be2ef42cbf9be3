"""The check for machines with a GPU (tests/gpu), on the fake one: it works, and says what fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch_cuda

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(600)]

CHECK = Path(__file__).parent.parent / "gpu" / "check.py"


def check(tmp_path: Path, *parts: str, **settings: str) -> tuple[int, list[dict[str, Any]]]:
    environment = {**os.environ, **torch_cuda.environment(), "OMP_NUM_THREADS": "1", **settings}
    command = [sys.executable, str(CHECK), "--small", "--json", str(tmp_path / "rows"), *parts]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode, [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]


def test_its_parts_pass(tmp_path: Path) -> None:
    """But for the examples and the programs of faults.py, which other tests run."""
    parts = ("probe", "doctor", "collectives", "together", "streams", "a_rank_is_killed", "figures, staged")
    faults = ("a_rank_is_stopped", "a_kernel_fails", "a_kernel_takes_long")
    status, rows = check(tmp_path, *parts, *faults, STILL_STREAM="3")
    assert status == 0, rows
    assert [row["ranks"] for row in rows] == [1, 1, 2, 2, 2, 3, 2, 3, 2, 2]


def test_it_says_what_fails(tmp_path: Path) -> None:
    status, (row,) = check(tmp_path, "probe", FAKE_CUDA_FAIL_RUN="cuMemcpyAsync:1:700")
    assert status == 1
    assert not row["passed"]
    assert "GPU 0" in row["output"] or "CUDA" in row["output"], row
