"""Collectives in programs for a GPU. XLA for GPUs needs a real one, so its side is played, on the fake driver."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from torch_cuda.build import driver, nccl

HERE = Path(__file__).parent
FAKES = HERE.parent / "fakes"


# Each rank has a GPU of its own, which it sees first.
OWN_GPU = ["sh", "-c", 'i=$CIRANDA_LOCAL_RANK; CUDA_VISIBLE_DEVICES=$i,$(((i+1)%3)),$(((i+2)%3)) exec "$@"', "sh"]


def run(np: int, *programs: str, each: Sequence[str] = (), **settings: str) -> subprocess.CompletedProcess[str]:
    """`each`: what starts a rank."""
    paths = [str(FAKES / "modules"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "LD_LIBRARY_PATH": str(driver().parent)}
    environment |= {"JAX_PLATFORMS": "cpu", "FAKE_CUDA_DELAY_SEED": "1", **settings}
    command = [sys.executable, "-m", "ciranda.launch.cli", "run", "--no-prefix", "--grace", "10", "-np", str(np)]
    command += [*each, sys.executable, "-W", "ignore", str(HERE / "gpu_programs.py"), *programs]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)


@pytest.fixture(scope="module")
def told() -> list[str]:
    """What programs print that two ranks run one after the other, staged or by peer."""
    done = run(2, "every_collective", "trains", "bad_input", "parameters", "calls_by_platform")
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(done.stdout.splitlines())


@pytest.mark.multiprocess
def test_collectives_equal_numpy_and_training_equals_one_process(told: list[str]) -> None:
    assert told[-8:] == ["right"] * 8


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    ("begin", "part"),
    [
        ("FAILED_PRECONDITION: ciranda.jax: distributed()", "tensor '['w']"),
        ("differ: ", "tensor '['b']'"),
        ("FAILED_PRECONDITION: ciranda.jax: Ranks disagree about 'other shapes'", "[2, 3] on rank 0 but [3, 3] on"),
        ("FAILED_PRECONDITION: ciranda.jax: 'other rows'", "the ranks bring 5 rows in all"),
        ("INVALID_ARGUMENT: ciranda.jax: 'old jaxlib'", "install a newer one"),
        ("INVALID_ARGUMENT: Ciranda has not been initialized", "call init() first"),
    ],
)
def test_bad_input_is_told(told: list[str], begin: str, part: str) -> None:
    assert [part in line for line in told if line.startswith(begin)] == [True] * 2, told


@pytest.mark.multiprocess
@pytest.mark.parametrize("np", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_by_nccl_the_stream_waits_for_the_result(np: int) -> None:
    """The host does not: results are late."""
    by_nccl = {"CIRANDA_GPU_WAY": "nccl", "CIRANDA_NCCL": str(nccl()), "FAKE_CUDA_DEVICES": "3"}
    done = run(np, "every_collective", each=OWN_GPU, **by_nccl, FAKE_CUDA_DELAY_US="20000")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["right"] * np
    assert "NCCL cannot be used" not in done.stderr, done.stderr


@pytest.mark.multiprocess
def test_the_survivor_of_a_killed_rank_raises() -> None:
    done = run(2, "loses_a_rank")
    assert done.returncode != 0
    assert done.stdout.startswith("UNAVAILABLE: "), done.stdout + done.stderr
    assert "rank 1 (host " in done.stdout
