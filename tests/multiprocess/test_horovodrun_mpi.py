"""`horovodrun --mpi`: an MPI's mpirun starts the ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mpis import HOW, MPIS

pytest.importorskip("horovod", reason="the module `horovod` is not installed (compat/horovod)")

import horovod
from ciranda.launch.errors import LaunchError
from ciranda.launch.hosts import Host
from horovod.runner._arguments import NOT_NEEDED
from horovod.runner._mpirun import Asked, Flavour, flavour_of, words_of
from horovod.runner.mpi_run import mpi_available

pytestmark = pytest.mark.multiprocess

WHO = """
import os, sys, horovod, ciranda as hvd
hvd.init()
assert sys.argv[1:] == ["a b"]
assert os.environ["HOROVOD_FUSION_THRESHOLD"] == str(8 << 20)
assert os.environ["MINE"] == "here"
assert "HOROVOD_RANK" not in os.environ
sys.stdout.write(f"rank {hvd.rank()} of {hvd.size()}\\n")
sys.stdout.flush()
sys.exit(7 if os.environ.get("FAILS") == str(hvd.rank()) else 0)
"""
TWO = [Host("a", 2), Host("b", 1)]


def horovodrun(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "horovod.runner", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("name", MPIS)
def test_mpirun_starts_the_ranks(name: str, tmp_path: Path) -> None:
    """With settings and variables of this process, and the exit code of the rank that fails, or another."""
    mpi = MPIS[name]
    if mpi is None:
        pytest.skip(f"NOT TESTED, horovodrun --mpi by {name}: it is not installed ({HOW[name]})")
    script = tmp_path / "who.py"
    script.write_text(WHO)
    places = [str(Path(str(horovod.__file__)).parents[1]), mpi.env["PYTHONPATH"]]
    env = {**mpi.env, "PYTHONPATH": os.pathsep.join(places), "XDG_CACHE_HOME": str(tmp_path), "MINE": "here"}
    asked = ["-np", "2", "--mpi", "--fusion-threshold-mb", "8", "--mpi-args=--oversubscribe" if mpi.is_open_mpi else
             "--mpi-args=-verbose", "--verbose", sys.executable, str(script), "a b"]  # fmt: skip
    done = horovodrun(*asked, env=env)
    assert done.returncode == 0, done.stderr
    assert all(f"rank {rank} of 2" in done.stdout for rank in range(2))
    assert "horovodrun: mpirun -np 2" in done.stderr
    assert "no effect" not in done.stderr
    assert horovodrun(*asked, env={**env, "FAILS": "1"}).returncode != 0


def test_run_by_a_function_stays_with_our_own_launcher() -> None:
    assert NOT_NEEDED["use_mpi"][1] == "MPI is not used: only the command horovodrun starts ranks through it"
    assert mpi_available() is False


def test_without_an_mpirun_it_says_so(tmp_path: Path) -> None:
    env = {**os.environ, "PATH": str(tmp_path)}
    done = horovodrun("-np", "1", "--mpi", "true", env=env)
    assert done.returncode == 2
    assert done.stderr.startswith("horovodrun: --mpi: there is no mpirun on the PATH: install Open MPI")
    other = tmp_path / "mpirun"
    other.write_text("#!/bin/sh\necho an mpirun of ours\n")
    other.chmod(0o755)
    done = horovodrun("-np", "1", "--mpi", "true", env={**env, "PATH": f"{tmp_path}:/bin"})
    assert done.returncode == 2
    assert "the mpirun on the PATH is of an unknown MPI ('an mpirun of ours')" in done.stderr
    done = horovodrun("-np", "1", "--mpi", "--output-filename", "out", "true", env=env)
    assert "does not know --output-filename" in done.stderr


@pytest.mark.parametrize(
    ("version", "flavour"),
    [
        ("mpirun (Open MPI) 4.1.4", Flavour.OPEN_MPI),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.18.1", Flavour.INTEL_MPI),
        ("HYDRA build details:\n    Version:    5.0.2", Flavour.MPICH),
        ("srun", None),
    ],
)
def test_who_it_is_by_its_version(version: str, flavour: Flavour | None) -> None:
    assert flavour_of(version) is flavour


def test_hosts_and_options_in_the_words_of_each() -> None:
    env = {"A": "1", "HOROVOD_SECRET_KEY": "x", "CIRANDA_SECRET_FILE": "y"}
    asked = Asked(["train"], 3, TWO, env, mpi_args="--x 'y z'", ssh_words=["-p", "2222"])
    assert words_of(Flavour.OPEN_MPI, asked) == [
        *("mpirun", "-np", "3", "--allow-run-as-root", "--tag-output", "-H", "a:2,b:1"),
        *("--mca", "plm_rsh_args", "-p 2222", "--bind-to", "none", "-x", "A", "--x", "y z", "train"),
    ]
    asked = Asked(["train"], 3, TWO, env, binding_args="-bind-to core")
    assert words_of(Flavour.MPICH, asked) == [
        *("mpirun", "-np", "3", "-prepend-rank", "-hosts", "a:2,b:1", "-bind-to", "core", "-genvall", "train"),
    ]
    even = Asked(["train"], 2, [Host("a", 1), Host("b", 1)], env)
    assert words_of(Flavour.INTEL_MPI, even)[4:8] == ["-hosts", "a,b", "-ppn", "1"]
    with pytest.raises(LaunchError, match="No closing quotation"):
        words_of(Flavour.MPICH, Asked(["train"], 1, None, env, mpi_args="'"))
    with pytest.raises(LaunchError, match="as many slots each"):
        words_of(Flavour.INTEL_MPI, asked)
    with pytest.raises(LaunchError, match="takes no port or key for ssh"):
        words_of(Flavour.MPICH, Asked(["train"], 1, None, env, ssh_words=["-i", "key"]))
