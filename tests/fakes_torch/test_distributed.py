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


def found(device: str, **settings: str) -> list[str]:
    environment = {**os.environ, **torch_cuda.environment(), "OMP_NUM_THREADS": "1", **settings}
    command = [sys.executable, "-m", "ciranda.launch.cli", "run", "--no-prefix", "-np", "2"]
    done = subprocess.run(
        [*command, sys.executable, str(PROGRAM), device],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(line for line in done.stdout.splitlines() if line.startswith("FOUND "))


def test_the_gpus_results_are_the_cpus() -> None:
    on_cpu = found("cpu")
    assert len(on_cpu) == 2
    for seed in ("1", "2"):
        assert found("cuda", FAKE_CUDA_DEVICES="2", FAKE_CUDA_DELAY_SEED=seed) == on_cpu
