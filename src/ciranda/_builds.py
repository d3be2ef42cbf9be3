"""Horovod's functions about its build options, answered for Ciranda.

Scripts use them to choose between transports. Ciranda's engine does what Horovod does over Gloo, collectives on the CPU
without MPI, and copies tensors on GPUs there and back; so Gloo and CUDA are reported as available, and nothing else.
"""

from __future__ import annotations

from ciranda import _basics

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
    """Return 0, for no NCCL; else this would be its version."""
    return 0


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
