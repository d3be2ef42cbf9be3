"""The examples, with `--device cuda` on the fake GPUs: a rank uses the one of its local rank, and the proofs hold."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch_cuda

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
IN_TURN = ROOT / "tests/multiprocess/in_turn.py"
CIRANDA = ("ciranda.launch.cli", "run")
HOROVODRUN = ("horovod.runner",)

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(600)]


def run(np: int, script: Path, *arguments: str, launcher: tuple[str, ...] = CIRANDA) -> str:
    pytest.importorskip("sklearn")
    settings = {"OMP_NUM_THREADS": "1", "FAKE_CUDA_DEVICES": "2", "FAKE_CUDA_DELAY_SEED": "1"}
    environment = {**os.environ, **torch_cuda.environment(), **settings, "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", *launcher, "-np", str(np), sys.executable, str(script), *arguments]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_digits_proves_its_result(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    to = ("--output-dir", str(tmp_path))
    said = run(2, EXAMPLES / "digits.py", "--device", "cuda", "--model", "cnn", "--epochs", "1", *to)
    assert "the parameters of all 2 ranks are the same bits" in said
    assert "0.000e+00 (bit for bit)" in said


def test_examples_equal_one_process() -> None:
    names = ["accumulation", "ddp", "gradient_clipping", "mixed_precision"]
    said = run(2, IN_TURN, "--device", "cuda", *(str(EXAMPLES / f"{name}.py") for name in names))
    assert said.count("same as one process") == said.count("on 2 processes, cuda:0") == len(names)


def test_horovod_scripts() -> None:
    """Of the examples beside those above, the forms for Horovod."""
    pytest.importorskip("horovod._names", reason="the package in compat/horovod is not installed")
    scripts = [EXAMPLES / "horovod" / f"{name}.py" for name in ("mixed_precision", "process_sets", "uneven_batches")]
    said = run(2, IN_TURN, "--device", "cuda", *map(str, scripts), launcher=HOROVODRUN)
    assert said.count("on 2 processes") == len(scripts)
