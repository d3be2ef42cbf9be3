"""What Horovod's scripts ask about how it was built, answered for Ciranda.

Such questions choose between ways to communicate. What Horovod does over Gloo, collectives on the CPU without MPI,
Ciranda's own engine does; so Gloo, and nothing else, is said to be there.
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
    """Return True: what Gloo would do is in use."""
    return True


def gloo_built() -> bool:
    """Return True: what Gloo would do, Ciranda's engine does."""
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
    """Return False: tensors in the memory of CUDA devices cannot be communicated."""
    return False


def rocm_built() -> bool:
    """Return False: tensors in the memory of ROCm devices cannot be communicated."""
    return False
