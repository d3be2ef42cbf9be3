"""The digits example has the same parameters, bit by bit, whoever starts its four ranks. Ray and Spark: beside them."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import process_kubelet
import pytest
import slurm_cluster
from mpis import HOW, MPIS

from ciranda.launch import Pool

EXAMPLES = Path(__file__).parents[2] / "examples"
TRAIN = f"""
import sys
sys.path.insert(0, {str(EXAMPLES)!r})
from digits_task import train_here
sys.stdout.write(f"sha256 {{train_here()}}\\n")
"""
RUN = (sys.executable, "-m", "ciranda.launch.cli", "run", "--no-prefix")
RANK = (sys.executable, "-c", TRAIN)
SECONDS = 600


def sums(text: str) -> list[str]:
    """What the ranks have printed."""
    return re.findall(r"sha256 ([0-9a-f]{64})", text)


@pytest.fixture(scope="module")
def expected() -> list[str]:
    done = subprocess.run([*RUN, "-np", "4", *RANK], capture_output=True, text=True, timeout=SECONDS, check=True)
    found = sums(done.stdout)
    assert len(found) == 4
    assert len(set(found)) == 1
    return found


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path), "CIRANDA_START_TIMEOUT": "200", "OMP_NUM_THREADS": "1"}


def test_a_pool(expected: list[str]) -> None:
    sys.path.insert(0, str(EXAMPLES))
    module = importlib.import_module("digits_task")
    cloudpickle.register_pickle_by_value(module)
    with Pool(np=4) as pool:
        assert pool.run(module.train_here) == expected


@pytest.mark.parametrize("name", MPIS)
def test_mpirun(name: str, expected: list[str], env: dict[str, str]) -> None:
    mpi = MPIS[name]
    if mpi is None:
        pytest.skip(f"NOT TESTED, mpirun of {name}: it is not installed ({HOW[name]})")
    command = mpi.command(4, mpi.python, "-c", TRAIN)
    done = subprocess.run(command, env={**mpi.env, **env}, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert sums(done.stdout) == expected, done.stderr


def test_kubernetes(expected: list[str]) -> None:
    """Before the cluster of Slurm, whose hosts have the same names."""
    with process_kubelet.cluster(2) as hosts:
        of_image = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        options = ["--hosts", "2", "--slots", "2", "--start-timeout", "200"]
        with process_kubelet.job(hosts, options, list(RANK), {**of_image, "OMP_NUM_THREADS": "1"}) as kubelet:
            kubelet.start(0, 1)
            kubelet.until_ended(0, 1, seconds=SECONDS)
            said = kubelet.log(0) + kubelet.log(1)
            assert kubelet.codes == {0: [0], 1: [0]}, said
            assert sums(said) == expected


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm_cluster.Cluster]:
    if (why := slurm_cluster.why_not()) is not None:
        pytest.skip(f"NOT TESTED, Slurm: {why}")
    with slurm_cluster.cluster(2) as made:
        yield made


TORCHRUN = f"""exec {sys.executable} -m torch.distributed.run --nnodes 2 --nproc-per-node 2 --node-rank $SLURM_NODEID \\
  --master-addr 10.91.0.11 --master-port 29500 $TRAIN_PY"""
SLURM = {
    "srun": ["srun", "-N2", "-n4", *RANK],
    "srun --mpi=pmi2": ["srun", "--mpi=pmi2", "-N2", "-n4", *RANK],
    "ciranda run": ["salloc", "-N2", "-n4", "--ntasks-per-node=2", *RUN, *RANK],
    "torchrun in srun": ["srun", "-N2", "--ntasks-per-node=1", "sh", "-c", TORCHRUN],
}  # fmt: skip


@pytest.mark.parametrize("how", SLURM)
def test_slurm(
    how: str, cluster: slurm_cluster.Cluster, expected: list[str], env: dict[str, str], tmp_path: Path
) -> None:
    """torchrun's ranks are not srun's tasks, and need a secret in a file on several hosts."""
    script, secret = tmp_path / "train.py", tmp_path / "secret"
    script.write_text(TRAIN)
    secret.touch(mode=0o600)
    secret.write_text(os.urandom(32).hex())
    more = {"CIRANDA_SECRET_FILE": str(secret), "TRAIN_PY": str(script)} if how == "torchrun in srun" else {}
    code, out, err = cluster.run(*SLURM[how], seconds=SECONDS, **env, **more)
    assert code == 0, err
    assert sums(out) == expected
