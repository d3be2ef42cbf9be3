"""`horovodrun --mpi`: the ranks are started by an MPI's mpirun, and join as under any mpirun; see docs/guide/mpi.md."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn

from ciranda.launch.errors import LaunchError
from ciranda.launch.hosts import Host
from horovod.runner.common.util.env import is_exportable


class Flavour(Enum):
    """An MPI, by words of which one is in the output of `mpirun --version`."""

    OPEN_MPI = ("Open MPI", "OpenRTE", "PRTE", "PRRTE")
    INTEL_MPI = ("Intel(R) MPI",)
    MPICH = ("HYDRA", "MPICH")


_NOT_SUPPORTED = {
    "output_filename": "--output-filename",
    "prefix_output_with_timestamp": "--prefix-output-with-timestamp",
    "host_discovery_script": "--host-discovery-script",
    "min_num_proc": "--min-np",
    "max_num_proc": "--max-np",
}


@dataclass(frozen=True)
class Asked:
    """What mpirun is told: hosts are None if it is to find them itself, as in an allocation."""

    command: Sequence[str]
    num_proc: int | None
    hosts: Sequence[Host] | None
    env: Mapping[str, str]
    mpi_args: str | None = None
    binding_args: str | None = None
    ssh_words: Sequence[str] = ()


def flavour_of(version: str) -> Flavour | None:
    """Return the MPI whose mpirun says this of itself."""
    return next((flavour for flavour in Flavour if any(word in version for word in flavour.value)), None)


def find() -> Flavour:
    """Return the MPI whose mpirun is on the PATH.

    Raises:
        LaunchError: there is none, or none that is known.
    """
    remedy = "install Open MPI, MPICH or Intel MPI, or leave out --mpi: Ciranda then starts the ranks, without MPI"
    if shutil.which("mpirun") is None:
        raise LaunchError(f"--mpi: there is no mpirun on the PATH: {remedy}", exit_code=2)
    said = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False)
    found = flavour_of(said.stdout + said.stderr)
    if found is None:
        first = (said.stdout + said.stderr).strip().partition("\n")[0]
        raise LaunchError(f"--mpi: the mpirun on the PATH is of an unknown MPI ({first!r}): {remedy}", exit_code=2)
    return found


def words_of(flavour: Flavour, asked: Asked) -> list[str]:
    """Return the command line of mpirun. Pure.

    Raises:
        LaunchError: this mpirun cannot do what is asked for.
    """
    words = ["mpirun"]
    if asked.num_proc is not None:
        words += ["-np", str(asked.num_proc)]
    if flavour is Flavour.OPEN_MPI:
        words += ["--allow-run-as-root", "--tag-output"]
        if asked.hosts is not None:
            words += ["-H", ",".join(f"{host.name}:{host.slots}" for host in asked.hosts)]
        if asked.ssh_words:
            words += ["--mca", "plm_rsh_args", shlex.join(asked.ssh_words)]
        words += _split(asked.binding_args) if asked.binding_args else ["--bind-to", "none"]
        words += [word for name in sorted(asked.env) if is_exportable(name) for word in ("-x", name)]
    else:
        if asked.ssh_words:
            raise LaunchError(
                "--mpi: this mpirun takes no port or key for ssh: write them into ~/.ssh/config", exit_code=2
            )
        words += ["-prepend-rank"]
        if asked.hosts is not None:
            words += _hosts_of_hydra(flavour, asked.hosts)
        words += _split(asked.binding_args)
        words += ["-genvall"]
    return [*words, *_split(asked.mpi_args), *asked.command]


def _split(text: str | None) -> list[str]:
    try:
        return shlex.split(text or "")
    except ValueError as error:
        raise LaunchError(f"--mpi: {text!r} is not a list of arguments: {error}", exit_code=2) from None


def _hosts_of_hydra(flavour: Flavour, hosts: Sequence[Host]) -> list[str]:
    if flavour is Flavour.MPICH:
        return ["-hosts", ",".join(f"{host.name}:{host.slots}" for host in hosts)]
    if len({host.slots for host in hosts}) > 1:
        raise LaunchError("--mpi: Intel MPI's mpirun takes hosts with as many slots each", exit_code=2)
    return ["-hosts", ",".join(host.name for host in hosts), "-ppn", str(hosts[0].slots)]


def refuse_options(args: Any) -> None:
    """Raise LaunchError for an option of `horovodrun` that mpirun has no counterpart of."""
    for name, flag in _NOT_SUPPORTED.items():
        if getattr(args, name, None):
            raise LaunchError(f"--mpi: mpirun starts the ranks, and does not know {flag}: leave out one", exit_code=2)


def become(words: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Go on as mpirun: signals are for it, and its exit code is this process's."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(words[0], list(words), {**os.environ, **env})
