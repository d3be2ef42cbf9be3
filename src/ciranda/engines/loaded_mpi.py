"""MPI in this process, if mpi4py or other code has loaded it. Nothing here is linked to MPI, or imports mpi4py."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import warnings
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any, Protocol, TypeGuard, cast

_LIBRARIES = re.compile(r" (/.*/lib(?:mpi|mpich)\w*\.so[.0-9]*)$", re.MULTILINE)  # in /proc/self/maps


class Communicator(Protocol):
    """What is used of mpi4py's MPI.Comm. All of its members call each of these."""

    def Get_rank(self) -> int: ...  # noqa: N802, D102 - mpi4py's names
    def Get_size(self) -> int: ...  # noqa: N802, D102
    def Is_inter(self) -> bool: ...  # noqa: N802, D102
    def gather(self, sendobj: Any, root: int = 0) -> Any: ...  # noqa: D102
    def allgather(self, sendobj: Any) -> Any: ...  # noqa: D102
    def bcast(self, obj: Any, root: int = 0) -> Any: ...  # noqa: D102


def is_communicator(value: object) -> TypeGuard[Communicator]:
    """Whether it is a communicator of mpi4py."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is not None and isinstance(value, mpi.Comm)


def is_null(comm: Communicator) -> bool:
    """Whether it is that of the processes that are in none."""
    return bool(comm == sys.modules["mpi4py.MPI"].COMM_NULL)


def is_initialized() -> bool:
    """Whether this process has initialized MPI by mpi4py. Then MPI ends the connection to its process manager."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is not None and bool(mpi.Is_initialized())


def world_of_mpi(size: int) -> Communicator | None:
    """Return mpi4py's COMM_WORLD if MPI is in use in this process, and if it has all `size` processes of the job."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized() or mpi.COMM_WORLD.Get_size() != size:
        return None
    return cast(Communicator, mpi.COMM_WORLD)


def is_initialized_without_mpi4py() -> bool:
    """Whether another library has initialized MPI in this process."""
    if "mpi4py.MPI" in sys.modules:
        return False
    loaded = set(_LIBRARIES.findall(Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")))
    return any(_is_initialized(path) for path in loaded)


def _is_initialized(path: str) -> bool:
    flag = ctypes.c_int(0)
    try:
        ctypes.CDLL(path, mode=os.RTLD_NOLOAD).MPI_Initialized(ctypes.byref(flag))
    except (OSError, AttributeError):  # deleted since; no MPI
        return False
    return bool(flag.value)


class _Warner(MetaPathFinder):
    """Finds nothing, and warns of an import by which mpi4py initializes MPI."""

    def __init__(self, text: str) -> None:
        self._text = text

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "mpi4py.MPI" and sys.modules["mpi4py"].rc.initialize:
            warnings.warn(self._text, RuntimeWarning, stacklevel=2)


def warn_of_later_mpi(text: str) -> None:
    """Warn with this text when mpi4py is to initialize MPI from now on."""
    if not any(isinstance(finder, _Warner) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Warner(text))
