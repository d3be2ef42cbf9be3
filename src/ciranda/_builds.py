"""Horovod's functions about its build options, answered for Ciranda.

Scripts use them to choose between transports. Ciranda's engine does what Horovod does over Gloo, collectives on the CPU
without MPI, and those of tensors on GPUs; so Gloo and CUDA are reported as available, and NCCL where it is found.
"""

from __future__ import annotations

from ciranda import _basics
from ciranda._nccl import nccl

__all__ = [
    "ccl_built",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rocm_built",
]


def mpi_threads_supported() -> bool:
    """Return False: there is no MPI. Raises NotInitializedError (a ValueError) before init()."""
    _basics.engine()
    return False


def mpi_enabled() -> bool:
    """Return False: MPI is not in use."""
    return False


def mpi_built() -> bool:
    """Return False: Ciranda does not use MPI."""
    return False


def gloo_enabled() -> bool:
    """Return True: the counterpart of Gloo is in use."""
    return True


def gloo_built() -> bool:
    """Return True: Ciranda's engine is the counterpart of Gloo."""
    return True


def nccl_built() -> int:
    """Return the version of the NCCL that tensors on GPUs can go by, 22809 for 2.28.9; 0 if there is none.

    Every build can use the NCCL that it finds at run time, from 2.26.2 on: the one that the process has loaded, as
    torch does, else that of the package nvidia-nccl, else the system's; ``CIRANDA_NCCL`` names one. The process does
    not open it for this. `ciranda doctor` says what was found, and why it cannot be used.
    """
    found = nccl()
    return 0 if found.problem else found.version


def ddl_built() -> bool:
    """Return False: Ciranda does not use DDL."""
    return False


def ccl_built() -> bool:
    """Return False: Ciranda does not use oneCCL."""
    return False


def cuda_built() -> bool:
    """Return True: tensors in the memory of NVIDIA's GPUs can be communicated, if there is a driver for them.

    Every build can: one without kernels for GPUs copies small tensors one by one. `ciranda doctor` opens the GPUs, and
    says what is missing.
    """
    return True


def rocm_built() -> bool:
    """Return False: tensors in the memory of ROCm devices cannot be communicated."""
    return False
