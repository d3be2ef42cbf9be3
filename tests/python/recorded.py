"""Variables that engines have set, as recorded from the real ones; tests that run these compare them.

But for BATCH: tests/multiprocess/test_slurm.py submits such a job.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

# As mpirun of Open MPI 4.1 sets them for the second of four processes, and as that of Open MPI 5 does.
MPIRUN = {
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_MCA_ess_base_jobid": "616038401",
    "OMPI_MCA_orte_hnp_uri": "616038400.0;tcp://192.0.2.2:59937;tcp6://[fd00::2]:54921",
    "PMIX_NAMESPACE": "616038401",
    "PMIX_RANK": "1",
}
MPIRUN_5 = {
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "PMIX_NAMESPACE": "prterun-node0-4711@1",
    "PMIX_RANK": "1",
}
# As mpiexec of MPICH 5.0 and of Intel MPI 2021.18 sets them for the second of four processes.
MPIEXEC = {"PMI_SIZE": "4", "PMI_RANK": "1", "PMI_FD": "11", "MPI_LOCALNRANKS": "4", "MPI_LOCALRANKID": "1"}
# As srun of Slurm 22.05 sets them for the second of three tasks, of which two are on the first of two nodes.
SRUN = {
    "SLURM_CLUSTER_NAME": "ciranda",
    "SLURM_GTIDS": "0,1",
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_NODELIST": "node[0-1]",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "0",
    "SLURM_NTASKS": "3",
    "SLURM_PROCID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_TASKS_PER_NODE": "2,1",
}
# As srun --mpi=pmi2 does.
SRUN_PMI2 = {**SRUN, "PMI_FD": "10", "PMI_JOBID": "17.0", "PMI_RANK": "1", "PMI_SIZE": "3"}
# As srun --mpi=pmix does.
SRUN_PMIX = {**SRUN, "PMIX_NAMESPACE": "slurm.pmix.17.0", "PMIX_RANK": "1"}
# As sbatch sets them for its script, here within a step of two tasks of another job.
BATCH = {
    "SLURM_GTIDS": "0",
    "SLURM_JOB_ID": "18",
    "SLURM_JOB_NODELIST": "node0",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "1",
    "SLURM_PROCID": "0",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_TASKS_PER_NODE": "1",
}
# As salloc sets them for its command, outside of any step.
SALLOC = {
    "SLURM_JOB_ID": "3",
    "SLURM_JOB_NODELIST": "node[0-1]",
    "SLURM_NTASKS": "4",
    "SLURM_TASKS_PER_NODE": "3,1",
}

# Differ from job to job: only their form is compared. Open MPI 5 numbers local ranks by where they are bound.
_OF_A_JOB = (
    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri", "PMIX_NAMESPACE", "PMI_FD",
    "PMI_JOBID", "SLURM_JOB_ID", "SLURM_STEP_ID",
)  # fmt: skip


def form(recorded: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return what an environment has of the variables that are recorded, without what is a job's or a machine's own."""
    found = {name: environ.get(name, "not set") for name in recorded}
    return {name: _form(value) if name in _OF_A_JOB else value for name, value in found.items()}


def _form(value: str) -> str:
    """Return a value with each number as "N", and without addresses."""
    value = re.sub("tcp://.*", "tcp://ADDRESSES", value.replace(os.uname().nodename, "node0"))
    return re.sub(r"\d+", "N", value)
