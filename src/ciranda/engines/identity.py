"""Which process of which job this one is, by the variables of the engine that has started it. Pure, but for `slot_of`.

ENGINES is the table of those under which the ranks can meet: an engine is one row. The variables by which init() tells
that it would be alone by accident are in the engine's own table (cpp/base/other_launchers.cc), which C and C++ programs
use too; `_core.why_not_alone()` applies it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from ciranda.errors import InvalidArgumentError


class Way(Enum):
    """The source of the rendezvous."""

    ENGINE = "the CIRANDA_ and HOROVOD_ variables; the engine refuses contradictions"
    AGAIN = "the rendezvous of this process's last world, if its launcher did not give it"
    GROUP = "the store of torch.distributed's process group"
    TORCH = "the store of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as under torchrun"
    PADDLE = "the endpoints of Paddle's launcher, of which rank 0 has the first"
    FILE = "files in a folder that all nodes share and only the user can enter"
    KEY_VALUES = "the key-value space of mpiexec (PMI)"
    STEP = "the key-value space of srun (PMI-2 or PMIx); files, as FILE, where a process cannot reach it"


@dataclass(frozen=True)
class Engine:
    """A row of the table: the names of an engine's variables.

    Attributes:
        name, way: the engine's, and the source of the rendezvous.
        size, rank: those of the job. With one of 1, the row does not match.
        job: these together tell the job from all others; each must be set.
        restarts: these, if set, tell a job from an earlier one of the same identifier.
        local_rank, node, n_nodes: the position on the machine, and the machine's; "" if the engine does not give it.
        connection: the descriptor of a socket to the engine, which tells this process from those of all other jobs.
        agrees_with: has the same number as `size`, if this process is not of a job that was submitted within another.
        within: if one of these is set, another launcher has started this process, within a process of this engine.
        needs, unless: the row matches only if these are set, and this is not.
        same_size, same_rank: have the same numbers where another library or launcher has described this process too.
    """

    name: str
    way: Way
    size: str
    rank: str
    job: tuple[str, ...]
    restarts: tuple[str, ...] = ()
    local_rank: str = ""
    node: str = ""
    n_nodes: str = ""
    connection: str = ""
    agrees_with: str = ""
    within: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    unless: str = ""
    same_size: tuple[str, ...] = ()
    same_rank: tuple[str, ...] = ()


def _open_mpi(*job: str) -> Engine:
    return Engine(
        name="mpirun",
        way=Way.FILE,
        size="OMPI_COMM_WORLD_SIZE",
        rank="OMPI_COMM_WORLD_RANK",
        job=job,
        local_rank="OMPI_COMM_WORLD_LOCAL_RANK",
        same_size=("WORLD_SIZE",),
        same_rank=("RANK",),
    )


def _srun(way: Way, needs: tuple[str, ...] = (), unless: str = "") -> Engine:
    return Engine(
        name="srun",
        way=way,
        size="SLURM_STEP_NUM_TASKS",
        rank="SLURM_PROCID",
        job=("SLURM_JOB_ID", "SLURM_STEP_ID"),
        restarts=("SLURM_CLUSTER_NAME", "SLURM_RESTART_COUNT", "SLURM_JOB_START_TIME"),
        local_rank="SLURM_LOCALID",
        node="SLURM_NODEID",
        n_nodes="SLURM_STEP_NUM_NODES",
        agrees_with="SLURM_NTASKS",
        within=("OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "JSM_NAMESPACE_SIZE", "FLUX_JOB_SIZE", "PMI_ID"),
        needs=needs,
        unless=unless,
        same_size=("PMI_SIZE", "WORLD_SIZE"),
        same_rank=("PMI_RANK", "PMIX_RANK", "RANK"),
    )


#: In this order: torchrun, Paddle's launcher, mpirun and mpiexec are also started by srun, once on each node.
ENGINES = (
    Engine(
        name="torchrun",
        way=Way.TORCH,
        size="WORLD_SIZE",
        rank="RANK",
        job=("MASTER_ADDR", "MASTER_PORT"),
        local_rank="LOCAL_RANK",
        node="GROUP_RANK",
        n_nodes="GROUP_WORLD_SIZE",
    ),
    Engine(
        name="Paddle's launcher",
        way=Way.PADDLE,
        size="PADDLE_TRAINERS_NUM",
        rank="PADDLE_TRAINER_ID",
        job=("PADDLE_TRAINER_ENDPOINTS",),
        local_rank="PADDLE_RANK_IN_NODE",
    ),
    _open_mpi("OMPI_MCA_orte_hnp_uri", "OMPI_MCA_ess_base_jobid"),  # Open MPI 4: the address of mpirun, and a number
    _open_mpi("PMIX_NAMESPACE"),  # Open MPI 5: host and process of mpirun, and a number
    Engine(
        name="mpiexec",  # of MPICH and Intel MPI
        way=Way.KEY_VALUES,
        size="PMI_SIZE",
        rank="PMI_RANK",
        job=("PMI_FD", "MPI_LOCALNRANKS"),  # srun sets the first too, for another protocol
        local_rank="MPI_LOCALRANKID",
        connection="PMI_FD",
        same_size=("WORLD_SIZE",),
        same_rank=("RANK",),
    ),
    _srun(Way.STEP, needs=("PMI_FD", "PMI_JOBID"), unless="CIRANDA_HANDOVER_FOLDER"),  # with --mpi=pmi2
    _srun(Way.STEP, needs=("PMIX_NAMESPACE", "PMIX_RANK"), unless="CIRANDA_HANDOVER_FOLDER"),  # with --mpi=pmix
    _srun(Way.FILE),
)

#: Variables of Ciranda's and Horovod's own, which count before all others.
ITS_OWN = ("CIRANDA_ENGINE", "CIRANDA_SIZE", "CIRANDA_STORE", "HOROVOD_SIZE")


@dataclass(frozen=True)
class Identity:
    """The position of this process in its job, as its engine describes it; None where it does not."""

    engine: Engine
    size: int
    rank: int
    local_rank: int | None
    node: int | None
    n_nodes: int | None
    variables: Mapping[str, str]

    @property
    def words(self) -> str:
        """The position and the variables that give it."""
        names = (self.engine.size, self.engine.rank, *self.engine.job)
        given = ", ".join(f"{name}={self.variables[name]}" for name in names)
        return f"{self.engine.name}: rank {self.rank} of {self.size} ({given})"

    @property
    def slot(self) -> str:
        """What tells this process's slot from all others, of this job and others."""
        return " ".join(f"{name}={value}" for name, value in self.variables.items())

    @property
    def job(self) -> str:
        """What tells this job from all others, also from one of the same identifier before."""
        names = (*self.engine.job, *self.engine.restarts)
        return " ".join(f"{name}={self.variables[name]}" for name in names if name in self.variables)


def identity(environ: Mapping[str, str]) -> Identity | None:
    """Return the identity by the first row that describes one of several processes, if there is one.

    Raises:
        InvalidArgumentError: the engine's variables contradict another library's.
    """
    return next((found for engine in ENGINES if (found := _by_row(engine, environ)) is not None), None)


def is_told(environ: Mapping[str, str]) -> bool:
    """Return whether variables of Ciranda's or Horovod's own describe the world, which count before all others."""
    return any(environ.get(name) for name in ITS_OWN)


def way_to_meet(environ: Mapping[str, str], size_of_group: int = 1, has_met: bool = False) -> Way:
    """Return the source of the rendezvous.

    `size_of_group` is that of torch.distributed's default group, 1 if there is none; `has_met`: whether the ranks have
    used a store of torch's, or a file, already.

    A source that describes a single process is not used: then the engine checks for contradictions.

    Raises:
        InvalidArgumentError: as identity() does.
    """
    if is_told(environ):
        return Way.ENGINE
    if size_of_group > 1:
        return Way.GROUP
    if has_met:
        return Way.AGAIN
    found = identity(environ)
    return Way.ENGINE if found is None else found.engine.way


def doubt(environ: Mapping[str, str]) -> str:
    """Return why a world of one may not be meant, although nothing says that this is one of several; "" if it may."""
    job = environ.get("SLURM_JOB_ID")
    name = "SLURM_NTASKS" if environ.get("SLURM_NTASKS") else "SLURM_JOB_NUM_NODES"
    tasks = environ.get(name, "")
    is_task = environ.get("SLURM_STEP_NUM_TASKS", "") == tasks
    if is_told(environ) or is_task or not job or not tasks.isdigit() or int(tasks) < 2:
        return ""
    return (
        f"{name}={tasks}: Slurm job {job} may run {tasks} tasks, but this process is in none of its steps: it is "
        f"a world of one. For {tasks} ranks write 'ciranda run COMMAND' or 'srun COMMAND'; CIRANDA_ENGINE=none ends "
        "this warning"
    )


def slot_of(environ: Mapping[str, str]) -> str | None:
    """Return what tells a rank's slot from all others, of this job and others; None where the engine knows."""
    if is_told(environ):
        return None
    found = identity(environ)
    if found is None or not found.engine.connection:
        return None if found is None else found.slot
    try:
        socket = os.readlink(f"/proc/self/fd/{found.variables[found.engine.connection]}")
    except OSError:
        socket = "none"
    return f"{found.slot} {socket}"


def _by_row(engine: Engine, environ: Mapping[str, str]) -> Identity | None:
    needed = (engine.size, engine.rank, *engine.job)
    if not all(environ.get(name) for name in (*needed, *engine.needs)) or environ[engine.size] == "1":
        return None
    if engine.agrees_with and environ.get(engine.agrees_with, environ[engine.size]) != environ[engine.size]:
        return None
    if any(environ.get(name) for name in (*engine.within, engine.unless)):
        return None
    variables = {name: environ[name] for name in (*needed, *engine.restarts) if environ.get(name)}
    numbers = {name: number_of(environ, name) for name in (engine.size, engine.rank)}
    for own, others in ((engine.size, engine.same_size), (engine.rank, engine.same_rank)):
        for other in others:
            if environ.get(other, environ[own]) != environ[own]:
                raise InvalidArgumentError(
                    f"{own}={environ[own]}, of {engine.name}, and {other}={environ[other]} contradict each other: "
                    f"unset the one that does not describe this process, or set CIRANDA_ENGINE=none if it is meant to "
                    "be alone"
                )
    return Identity(
        engine,
        size=numbers[engine.size],
        rank=numbers[engine.rank],
        local_rank=_number_if_set(environ, engine.local_rank),
        node=_number_if_set(environ, engine.node),
        n_nodes=_number_if_set(environ, engine.n_nodes),
        variables=variables,
    )


def number_of(environ: Mapping[str, str], name: str) -> int:
    """Return the number that a variable has.

    Raises:
        InvalidArgumentError: it is none.
    """
    if not environ[name].isdigit():
        raise InvalidArgumentError(f"{name}={environ[name]} is not a number")
    return int(environ[name])


def _number_if_set(environ: Mapping[str, str], name: str) -> int | None:
    return int(environ[name]) if environ.get(name, "").isdigit() else None
