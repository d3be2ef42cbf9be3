"""The examples run, and prove a right training right; the main job also proves a wrong one wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "digits.py"
IN_TURN = Path(__file__).with_name("in_turn.py")

# Every rank goes its own way: nothing is averaged.
BROKEN = f"""
import runpy, sys
import ciranda.torch
ciranda.torch.DistributedOptimizer = lambda optimizer, named_parameters: optimizer
sys.argv[0] = {str(EXAMPLE)!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""

CIRANDA = ("ciranda.launch.cli", "run")
HOROVODRUN = ("horovod.runner",)

pytestmark = pytest.mark.multiprocess


def run(np: int, *command: str, launcher: tuple[str, ...] = CIRANDA) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    launch = [sys.executable, "-m", *launcher, "-np", str(np), sys.executable, *command]
    return subprocess.run(launch, env=environment, check=False, capture_output=True, text=True, timeout=120)


def test_digits_proves_its_result(tmp_path: Path) -> None:
    done = run(3, str(EXAMPLE), "--epochs", "4", "--output-dir", str(tmp_path / "new folder"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the parameters of all 3 ranks are the same bits" in done.stdout
    assert "within fp32 rounding" in done.stdout
    assert "0.000e+00 (bit for bit)" in done.stdout
    assert (tmp_path / "new folder" / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_digits_says_when_the_result_is_wrong(tmp_path: Path) -> None:
    done = run(2, "-c", BROKEN, "--epochs", "2", "--output-dir", str(tmp_path))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "ranks are DIFFERENT" in done.stdout
    assert "BEYOND fp32 rounding" in done.stdout


# Rank 1 does not clip.
BROKEN_CLIPPING = f"""
import runpy, sys
import ciranda.torch
from torch import nn
clip = nn.utils.clip_grad_norm_
nn.utils.clip_grad_norm_ = lambda parameters, limit: ciranda.torch.rank() == 0 and clip(parameters, limit)
sys.path.insert(0, {str(EXAMPLES)!r})
runpy.run_path({str(EXAMPLES / "gradient_clipping.py")!r}, run_name="__main__")
"""


def test_an_elastic_training_equals_one_process_though_rank_0_is_killed(tmp_path: Path) -> None:
    script = [str(EXAMPLES / "elastic.py"), "--steps", "60", "--pause", "0", "--no-wait", "--output-dir", str(tmp_path)]
    done = run(2, *script, launcher=(*CIRANDA, "--elastic", "--min-np", "1"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "60 steps; ranks: 2, then 1" in done.stdout
    assert "same as one process" in done.stdout
    assert (tmp_path / "elastic.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("np", "names"),
    [
        (2, ["accumulation", "ddp", "gradient_clipping", "mixed_precision"]),
        (3, ["process_sets", "uneven_batches"]),
    ],
)
def test_examples_equal_one_process(np: int, names: list[str]) -> None:
    done = run(np, str(IN_TURN), *(str(EXAMPLES / f"{name}.py") for name in names))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f"on {np} processes") == len(names)
    assert done.stdout.count("same as one process") == len(names)


def test_a_framework_of_ones_own() -> None:
    done = run(3, str(EXAMPLES / "array_framework.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all as expected") == 3


def test_example_says_when_the_result_is_wrong() -> None:
    done = run(2, "-c", BROKEN_CLIPPING)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "DIFFERENT from one process" in done.stdout


def test_horovod_scripts_run_as_they_are() -> None:
    pytest.importorskip("horovod._names", reason="the package in compat/horovod is not installed")
    scripts = sorted((EXAMPLES / "horovod").glob("*.py"))
    assert [script for script in scripts if "ciranda" in script.read_text(encoding="utf-8").lower()] == []
    scripts = [script for script in scripts if not script.name.startswith("mxnet_")]  # tests/mxnet runs those
    done = run(2, str(IN_TURN), *map(str, scripts), launcher=HOROVODRUN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("on 2 processes") == len(scripts)
    assert done.stderr == ""
