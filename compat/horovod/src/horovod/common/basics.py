"""`horovod.common.basics`: who this process is, as methods of an object."""

from __future__ import annotations

from collections.abc import Sequence

import ciranda
from ciranda import ProcessSet
from horovod.common import util

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

    def init(self, comm: Sequence[int] | None = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
        """Join the circle: see `ciranda.init`."""
        ciranda.init(comm, process_sets)

    def shutdown(self) -> None:
        """Leave the circle."""
        ciranda.shutdown()

    def is_initialized(self) -> bool:
        """Whether this process is in a circle."""
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

    def mpi_threads_supported(self) -> bool:
        """False: there is no MPI."""
        return False

    def mpi_enabled(self) -> bool:
        """False: there is no MPI."""
        return False

    def mpi_built(self) -> bool:
        """See `horovod.common.util`, as for all that follow."""
        return util.mpi_built()

    def gloo_enabled(self) -> bool:
        """As `gloo_built`: what is there is in use."""
        return util.gloo_built()

    def gloo_built(self) -> bool:
        """True: Ciranda's engine stands where Gloo would."""
        return util.gloo_built()

    def nccl_built(self) -> int:
        """0 without NCCL, else its version."""
        return int(util.nccl_built())

    def ddl_built(self) -> bool:
        """False."""
        return util.ddl_built()

    def ccl_built(self) -> bool:
        """False."""
        return util.ccl_built()

    def cuda_built(self) -> bool:
        """Whether tensors in the memory of a CUDA device can be used."""
        return False

    def rocm_built(self) -> bool:
        """Whether tensors in the memory of a ROCm device can be used."""
        return False
