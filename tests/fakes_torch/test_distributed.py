"""torch.distributed over the backend ciranda, with tensors on the fake GPU: the results are those on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch_cuda

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).with_name("distributed.py")


def found(*devices: str) -> dict[str, list[str]]:
    """What the ranks came to on each device, one after the other."""
    settings = {"OMP_NUM_THREADS": "1", "FAKE_CUDA_DEVICES": "2"}
    command = [sys.executable, "-m", "ciranda.launch.cli", "run", "--no-prefix", "-np", "2"]
    done = subprocess.run(
        [*command, sys.executable, str(PROGRAM), *devices],
        env={**os.environ, **torch_cuda.environment(), **settings},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    by_device: dict[str, list[str]] = {device: [] for device in devices}
    for line in sorted(line for line in done.stdout.splitlines() if line.startswith("FOUND ")):
        _, device, came_to = line.split(" ", 2)
        by_device[device].append(came_to)
    return by_device


def test_the_gpus_results_are_the_cpus() -> None:
    """A wait orders the stream that is current then; only what is staged may be under way when it returns."""
    by_device = found("cpu", "cuda=1,peer", "cuda=2,staged")
    assert len(by_device["cpu"]) == 2
    assert by_device["cuda=1,peer"] == by_device["cuda=2,staged"] == by_device["cpu"]
