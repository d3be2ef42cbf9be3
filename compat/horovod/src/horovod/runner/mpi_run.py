"""`horovod.runner.mpi_run`: whether there is MPI. There is none as far as Ciranda is concerned: it starts the ranks."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["is_intel_mpi", "is_mpich", "is_open_mpi", "is_spectrum_mpi", "mpi_available"]


def mpi_available(env: Mapping[str, str] | None = None) -> bool:
    """False: jobs are not started through MPI, whether or not it is installed."""
    del env
    return False


def is_open_mpi(env: Mapping[str, str] | None = None) -> bool:
    """False, as `mpi_available`."""
    return mpi_available(env)


def is_spectrum_mpi(env: Mapping[str, str] | None = None) -> bool:
    """False, as `mpi_available`."""
    return mpi_available(env)


def is_mpich(env: Mapping[str, str] | None = None) -> bool:
    """False, as `mpi_available`."""
    return mpi_available(env)


def is_intel_mpi(env: Mapping[str, str] | None = None) -> bool:
    """False, as `mpi_available`."""
    return mpi_available(env)
