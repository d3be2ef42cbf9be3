"""`horovod.common.basics`: who this process is, as methods of an object."""

from __future__ import annotations

from collections.abc import Sequence

import ciranda
from ciranda import ProcessSet
from ciranda.engines.loaded_mpi import Communicator

__all__ = ["HorovodBasics"]


class HorovodBasics:
    """The functions of `horovod.torch` that all frameworks share. The arguments change nothing: there is one engine."""

    Average = ciranda.Average
    Sum = ciranda.Sum
    Adasum = ciranda.Adasum
    Min = ciranda.Min
    Max = ciranda.Max
    Product = ciranda.Product

    def __init__(self, pkg_path: str, *args: str) -> None:
        del pkg_path, args

    def init(
        self, comm: Sequence[int] | Communicator | None = None, process_sets: Sequence[ProcessSet] | str | None = None
    ) -> None:
        """Join the world: see `ciranda.init`."""
        ciranda.init(comm, process_sets)

    def shutdown(self) -> None:
        """Leave the world."""
        ciranda.shutdown()

    def is_initialized(self) -> bool:
        """Whether this process is in a world."""
        return ciranda.is_initialized()

    def rank(self) -> int:
        """This process's number among all. ValueError before `init`, as for all that follow."""
        return ciranda.rank()

    def size(self) -> int:
        """The number of processes."""
        return ciranda.size()

    def local_rank(self) -> int:
        """This process's number among those on its host."""
        return ciranda.local_rank()

    def local_size(self) -> int:
        """The number of processes on this host."""
        return ciranda.local_size()

    def cross_rank(self) -> int:
        """The number of this host among those that have a process with this local rank."""
        return ciranda.cross_rank()

    def cross_size(self) -> int:
        """The number of hosts that have a process with this local rank."""
        return ciranda.cross_size()

    def is_homogeneous(self) -> bool:
        """Whether every host has the same number of processes."""
        return ciranda.is_homogeneous()

    def start_timeline(self, file_path: str, mark_cycles: bool = False) -> None:
        """Begin to record the collectives in a file."""
        ciranda.start_timeline(file_path, mark_cycles)

    def stop_timeline(self) -> None:
        """Complete that file."""
        ciranda.stop_timeline()

    def mpi_threads_supported(self) -> bool:
        """See `ciranda.mpi_threads_supported`, and so on for all that follow."""
        return ciranda.mpi_threads_supported()

    def mpi_enabled(self) -> bool:
        """See `ciranda.mpi_enabled`."""
        return ciranda.mpi_enabled()

    def mpi_built(self) -> bool:
        """See `ciranda.mpi_built`."""
        return ciranda.mpi_built()

    def gloo_enabled(self) -> bool:
        """See `ciranda.gloo_enabled`."""
        return ciranda.gloo_enabled()

    def gloo_built(self) -> bool:
        """See `ciranda.gloo_built`."""
        return ciranda.gloo_built()

    def nccl_built(self) -> int:
        """See `ciranda.nccl_built`."""
        return ciranda.nccl_built()

    def ddl_built(self) -> bool:
        """See `ciranda.ddl_built`."""
        return ciranda.ddl_built()

    def ccl_built(self) -> bool:
        """See `ciranda.ccl_built`."""
        return ciranda.ccl_built()

    def cuda_built(self) -> bool:
        """See `ciranda.cuda_built`."""
        return ciranda.cuda_built()

    def rocm_built(self) -> bool:
        """See `ciranda.rocm_built`."""
        return ciranda.rocm_built()
