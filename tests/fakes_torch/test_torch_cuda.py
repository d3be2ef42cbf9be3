"""The fake torch.cuda (tests/fakes/torch_cuda): a torch without CUDA trains on a GPU that is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch_cuda

pytestmark = pytest.mark.timeout(600)  # the first test compiles the fake

PROGRAMS = Path(__file__).with_name("programs.py")

RIGHT = [
    "properties",
    "factories",
    "arithmetic",
    "views",
    "storages",
    "modules",
    "optimizers",
    "sparse",
    "streams",
    "backward_on_the_stream_of_forward",
    "pinned_copies",
    "freed_memory_is_used_at_once",
]
WRONG = {
    "write_without_a_wait": "two uses of memory that nothing orders",
    "read_without_a_wait": "two uses of memory that nothing orders",
    "free_without_record_stream": "two uses of memory that nothing orders",
    "touch_by_the_host": "the host touches",
}


def run(*programs: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **torch_cuda.environment(), **settings}
    command = [sys.executable, str(PROGRAMS), *programs]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)


def test_right_programs() -> None:
    done = run(*RIGHT, FAKE_CUDA_DELAY_SEED="1")
    assert done.returncode == 0, done.stderr


def test_two_gpus() -> None:
    done = run("another_gpu", FAKE_CUDA_DEVICES="2")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("program", WRONG)
def test_the_checker_ends_wrong_programs(program: str) -> None:
    done = run(program)
    assert done.returncode < 0, done.stdout + done.stderr
    assert WRONG[program] in done.stderr


def test_it_comes_before_torch() -> None:
    program = "import torch, torch_cuda; torch_cuda.install()"
    environment = {**os.environ, "PYTHONPATH": str(Path(torch_cuda.__file__).parents[1])}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert "install() comes before torch is imported" in done.stderr
