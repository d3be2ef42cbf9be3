"""MPI in this process, if mpi4py has loaded it. Nothing here is linked to MPI, or imports mpi4py."""

from __future__ import annotations

import sys
from typing import Any, Protocol, TypeGuard, cast


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
