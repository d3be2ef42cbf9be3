"""The environment of a rank: the inherited variables, and those of its position. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ciranda.launch.hosts import Slot

# Belongs to the machine or the terminal of the launcher; a remote host has its own.
LOCAL_ONLY = (
    "SSH_*", "HOSTNAME", "HOST", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_*", "DBUS_*", "PWD", "OLDPWD",
    "SHLVL", "_", "TMPDIR", "TEMP", "TMP", "TTY", "GPG_TTY", "WINDOWID", "TMUX*", "STY", "MAIL", "LS_COLORS",
)  # fmt: skip

_IDENTITY = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")

# Says which process of which job this one is, in the words of some launcher. A job that surrounds the launcher is not
# the ranks' job: libraries that find its words (Lightning and Accelerate look for Slurm's and Open MPI's) believe them.
JOB_IDENTITY = (
    *(prefix + name for prefix in ("CIRANDA_", "HOROVOD_") for name in _IDENTITY),
    "CIRANDA_AGENT_FD", "CIRANDA_HOST", "CIRANDA_JOB", "CIRANDA_STORE", "CIRANDA_SECRET_FILE", "CIRANDA_CALL_FILE",
    "CIRANDA_RESULT_FD", "CIRANDA_PAGE_FILE", "CIRANDA_RECORDS_*",
    "CIRANDA_TAKEN_BY", "CIRANDA_TOLD_NAMES", "CIRANDA_TORCH_STORE", "HOROVOD_ELASTIC",
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_*", "NODE_RANK",
    "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_*", "JAX_COORDINATOR_ADDRESS", "OMPI_MCA_orte_hnp_uri",
    "OMPI_COMM_WORLD_*", "OMPI_UNIVERSE_SIZE", "PMI_*", "PMIX_*", "MV2_COMM_WORLD_*", "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS", "PALS_*", "ALPS_APP_PE", "LSF_PM_TASKID", "JSM_NAMESPACE_*", "FLUX_TASK_*", "FLUX_JOB_SIZE",
    "DMLC_NUM_WORKER",
    "SLURM_STEP_*", "SLURM_STEPID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS*", "SLURM_NPROCS",
    "SLURM_TASKS_PER_NODE", "SLURM_TASK_PID", "SLURM_GTIDS", "JOB_COMPLETION_INDEX",
    "PADDLE_TRAINER*", "PADDLE_CURRENT_ENDPOINT", "PADDLE_MASTER", "PADDLE_*_RANK", "PADDLE_*_SIZE",
    "PADDLE_RANK_IN_NODE", "PADDLE_NNODES",
)  # fmt: skip

# Who sets one of these has chosen where the ranks meet.
OF_STORE = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE")

_FIRST_ENDPOINT = 6170  # of Paddle's own launcher

# What Horovod's launcher says of itself, and scripts look at to see that they were launched, and that without MPI.
_CONTROLLER = {"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo"}


@dataclass(frozen=True)
class Meeting:
    """Where rank 0 can make a torch.distributed.TCPStore and, if asked for, JAX's coordinator; the others reach it."""

    address: str
    port: int
    jax_port: int | None = None
    store_port: int | None = None  # where the agent hosts a TCPStore


def forwarded(environ: Mapping[bytes, bytes], remote: bool, exclude: Iterable[str] = ()) -> dict[bytes, bytes]:
    """The variables of the launcher's environment that a host's ranks inherit.

    All but ``exclude`` (names, or patterns as in a shell), but JOB_IDENTITY, and but LOCAL_ONLY if remote.
    """
    patterns = [*exclude, *JOB_IDENTITY, *(LOCAL_ONLY if remote else ())]
    return {name: value for name, value in environ.items() if not _matches(name, patterns)}


def _matches(name: bytes, patterns: list[str]) -> bool:
    text = name.decode("utf-8", "surrogateescape")
    return any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns)


def identity(slot: Slot, jax_native: bool = False) -> dict[str, str]:
    """The variables of a rank's position, under all launchers' names: JAX's on request."""
    values = (slot.rank, slot.size, slot.local_rank, slot.local_size, slot.cross_rank, slot.cross_size)
    env = dict(_CONTROLLER)
    for name, value in zip(_IDENTITY, values, strict=True):
        env[f"CIRANDA_{name}"] = env[f"HOROVOD_{name}"] = str(value)
    env["CIRANDA_HOST"] = env["HOROVOD_HOSTNAME"] = slot.host
    of_torch = {
        "RANK": slot.rank,
        "WORLD_SIZE": slot.size,
        "LOCAL_RANK": slot.local_rank,
        "LOCAL_WORLD_SIZE": slot.local_size,
        "GROUP_RANK": slot.host_index,
        "GROUP_WORLD_SIZE": slot.n_hosts,
        "ROLE_RANK": slot.rank,
        "ROLE_WORLD_SIZE": slot.size,
    }
    env.update({name: str(value) for name, value in of_torch.items()})
    env |= {
        "PADDLE_TRAINER_ID": str(slot.rank),
        "PADDLE_TRAINERS_NUM": str(slot.size),
        "PADDLE_RANK_IN_NODE": str(slot.local_rank),
        "PADDLE_CURRENT_ENDPOINT": _endpoint(slot),
    }
    if jax_native:
        env.update(_for_jax(slot))
    return env


def _endpoint(slot: Slot) -> str:
    """Paddle's identifier of a rank. No process listens there: Paddle's store is where torch's would be."""
    host = f"[{slot.host}]" if ":" in slot.host else slot.host
    return f"{host}:{_FIRST_ENDPOINT + slot.rank}"


def _for_jax(slot: Slot) -> dict[str, str]:
    """The variables that `jax.distributed.initialize()` reads without arguments: Open MPI's."""
    return {
        "OMPI_MCA_orte_hnp_uri": "0.0;ciranda",  # that it is there is enough: the coordinator has a variable of its own
        "OMPI_COMM_WORLD_SIZE": str(slot.size),
        "OMPI_COMM_WORLD_RANK": str(slot.rank),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(slot.local_rank),
    }


def of_job(job_id: str, meeting: Meeting, slots: Iterable[Slot]) -> dict[str, str]:
    """The variables of torch's and Paddle's launchers, and for JAX, that are the same for every rank."""
    env = {
        "MASTER_ADDR": meeting.address,
        "MASTER_PORT": str(meeting.port),
        "ROLE_NAME": "default",
        "TORCHELASTIC_RUN_ID": job_id,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",  # rank 0 makes the store
        "PADDLE_TRAINER_ENDPOINTS": ",".join(map(_endpoint, sorted(slots, key=lambda slot: slot.rank))),
    }
    host = f"[{meeting.address}]" if ":" in meeting.address else meeting.address
    if meeting.store_port is not None:
        env["CIRANDA_TORCH_STORE"] = f"{host}:{meeting.store_port}"
    if meeting.jax_port is not None:
        env["JAX_COORDINATOR_ADDRESS"] = f"{host}:{meeting.jax_port}"
        env["JAX_CPU_COLLECTIVES_IMPLEMENTATION"] = "mpi"
    return env
