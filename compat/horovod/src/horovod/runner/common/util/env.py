"""`horovod.runner.common.util.env`: which variables go along to other hosts, and which rank a process is by its own."""

from __future__ import annotations

import os
import re

__all__ = ["IGNORE_REGEXES", "KUBEFLOW_MPI_EXEC", "LOG_LEVEL_STR", "get_env_rank_and_size", "is_exportable"]
__all__ += ["is_kubeflow_mpi"]

#: From the fewest messages to the most.
LOG_LEVEL_STR = ["FATAL", "ERROR", "WARNING", "INFO", "DEBUG", "TRACE"]

#: Variables whose names begin like this belong to one host, or to nobody else.
IGNORE_REGEXES = {"BASH_FUNC_.*", "OLDPWD", ".*CUDA_VISIBLE_DEVICES", "_?HOROVOD_SECRET_KEY", "CIRANDA_SECRET.*"}

KUBEFLOW_MPI_EXEC = "/etc/mpi/kubexec.sh"

_RANK_AND_SIZE = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def is_exportable(v: str) -> bool:
    """Whether the variable named `v` may go along to another host."""
    return not any(re.match(pattern, v) for pattern in IGNORE_REGEXES)


def get_env_rank_and_size() -> tuple[int, int]:
    """This process's rank and the number of ranks, by the variables of whoever started it; rank 0 of 1 without any.

    Raises:
        RuntimeError: one variable of a pair is set and the other is not.
    """
    for rank, size in _RANK_AND_SIZE:
        values = [os.environ[name] for name in (rank, size) if name in os.environ]
        if len(values) == 1:
            raise RuntimeError(f"only one of {rank} and {size} is set: set both, or neither")
        if values:
            return int(values[0]), int(values[1])
    return 0, 1


def is_kubeflow_mpi() -> bool:
    """Whether this is a job of Kubeflow's MPI operator."""
    return os.environ.get("OMPI_MCA_plm_rsh_agent") == KUBEFLOW_MPI_EXEC  # noqa: SIM112 (Open MPI's name)
