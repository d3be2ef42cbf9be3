"""`horovod.runner.mpi_run`: whether jobs start through MPI. From Python none does; `horovodrun --mpi` does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from horovod.runner.gloo_run import gloo_run

__all__ = ["is_intel_mpi", "is_mpich", "is_open_mpi", "is_spectrum_mpi", "mpi_available", "mpi_run"]


def mpi_available(env: Mapping[str, str] | None = None) -> bool:
    """False: from Python, jobs are not started through MPI, whether or not it is installed."""
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


def mpi_run(
    settings: Any,
    nics: Iterable[str] | None,
    env: Mapping[str, str] | None,
    command: Sequence[str],
    stdout: Any = None,
    stderr: Any = None,
) -> None:
    """As `horovod.runner.gloo_run.gloo_run`: by Ciranda's launcher, as `horovodrun --jsrun`.

    Raises:
        ValueError: `stdout` or `stderr` is given; output goes to this process's own.
    """
    if stdout is not None or stderr is not None:
        raise ValueError("stdout and stderr cannot be given: set settings.output_filename for files of each rank")
    gloo_run(settings, nics, env, None, command)
