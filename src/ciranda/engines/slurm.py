"""Slurm as the host of a job: the nodes and sizes of an allocation, and agents that srun starts on its nodes.

An agent is the only task of a job step on its node. The step may use all that the allocation has there (--overlap), and
nothing is bound, so that the agent's ranks share it. No ssh is needed.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ciranda.launch import ssh
from ciranda.launch.errors import HostsError, LaunchError
from ciranda.launch.hosts import Host, Slot, checked_size
from ciranda.launch.link import AgentLink
from ciranda.launch.silence import LATER_THAN_RANKS, Silence, accepted_by, limit_of, of_process, seen_from_there

# Options of srun that its environment may hold, as it does in a batch script: they were for other steps.
_OPTIONS = (
    "CPUS_PER_TASK", "CPU_BIND", "DISTRIBUTION", "EXACT", "EXCLUSIVE", "GPUS_PER_TASK", "GPU_BIND", "HINT",
    "KILL_BAD_EXIT", "LABELIO", "MEM_BIND", "NNODES", "NPROCS", "NTASKS", "NTASKS_PER_CORE", "NTASKS_PER_GPU",
    "NTASKS_PER_NODE", "NTASKS_PER_SOCKET", "NTASKS_PER_TRES", "OPEN_MODE", "OVERCOMMIT", "STDERRMODE", "STDINMODE",
    "STDOUTMODE", "STEP_GRES", "THREADS_PER_CORE", "TRES_PER_TASK", "UNBUFFEREDIO", "WHOLE",
)  # fmt: skip

# srun would pass them on, and they are another host's there.
_OF_A_HOST = ("HOSTNAME", "HOST")


@dataclass(frozen=True)
class Allocation:
    """What Slurm has given to a job: its nodes in order, and the number of tasks on each; None where it is unknown."""

    job: str
    nodes: tuple[str, ...]
    tasks: tuple[int, ...] | None

    @property
    def words(self) -> str:
        """The job, and its nodes with their numbers of tasks."""
        if self.tasks is None:
            return f"Slurm job {self.job} on {', '.join(self.nodes)}"
        counts = zip(self.nodes, self.tasks, strict=True)
        return f"Slurm job {self.job} with tasks on {', '.join(f'{node}:{count}' for node, count in counts)}"

    def hosts(self, np: int | None = None, per_host: int | None = None) -> list[Host]:
        """Return the nodes with a slot for each task; with ``per_host`` for each if that is given.

        A single node has as many slots as are asked for: its cores may be those of one task.

        Raises:
            HostsError: the numbers do not fit.
        """
        if per_host is not None:
            return [Host(node, checked_size(per_host)) for node in self.nodes]
        if len(self.nodes) == 1 and np is not None:
            return [Host(self.nodes[0], checked_size(np))]
        if self.tasks is None:
            raise HostsError(
                f"SLURM_TASKS_PER_NODE does not say how many tasks each of the {len(self.nodes)} nodes of Slurm job "
                f"{self.job} has, as within a step of some of them: give --nproc-per-node N for all nodes, or "
                "-H localhost:N for this one"
            )
        if np is not None and np > sum(self.tasks):
            listed = ", ".join(f"{node}:{count}" for node, count in zip(self.nodes, self.tasks, strict=True))
            raise HostsError(
                f"-np {np} is more than the {sum(self.tasks)} tasks of Slurm job {self.job} ({listed}): ask Slurm for "
                f"more (-n {np}), give --nproc-per-node N, or -H {self.nodes[0]}:{np} for one node alone"
            )
        return [Host(node, count) for node, count in zip(self.nodes, self.tasks, strict=True)]


def allocation(environ: Mapping[str, str]) -> Allocation | None:
    """Return the allocation that this process may use, if it is in one.

    One of several tasks of a step may not, nor may a rank of `ciranda run`: the others would use it too.
    """
    job, nodes = environ.get("SLURM_JOB_ID", ""), environ.get("SLURM_JOB_NODELIST", "")
    if not job or not nodes or number_of_tasks(environ) > 1 or environ.get("CIRANDA_JOB"):
        return None
    names = nodes_of(nodes)
    tasks = counts_of(environ.get("SLURM_TASKS_PER_NODE", ""))
    return Allocation(job, names, tasks if len(tasks) == len(names) else None)


def number_of_tasks(environ: Mapping[str, str]) -> int:
    """Return of how many tasks of a job step this process is one; 1 outside of a step."""
    tasks = environ.get("SLURM_STEP_NUM_TASKS", "")
    if not tasks.isdigit() or environ.get("SLURM_NTASKS", tasks) != tasks:  # those of another job's step
        return 1
    return int(tasks)


def numbers_of_node(environ: Mapping[str, str]) -> tuple[int, ...]:
    """Return the ranks of the step's tasks on this node; none if Slurm does not say."""
    listed = environ.get("SLURM_GTIDS", "").split(",")
    return tuple(int(rank) for rank in listed) if all(rank.isdigit() for rank in listed) else ()


def nodes_of(text: str) -> tuple[str, ...]:
    """Expand a list of nodes: ``n[1-2,07],m`` is n1, n2, n07, m.

    Raises:
        HostsError: it is no such list.
    """
    entries = re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+", text)
    if ",".join(entries) != text:
        raise HostsError(f"SLURM_JOB_NODELIST={text!r} is not a list of nodes")
    return tuple(name for entry in entries for name in _expanded(entry))


def _expanded(entry: str) -> list[str]:
    pieces = re.split(r"\[([^\]]*)\]", entry)
    choices = [_in_brackets(piece) if index % 2 else [piece] for index, piece in enumerate(pieces)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def _in_brackets(text: str) -> list[str]:
    found: list[str] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise HostsError(f"SLURM_JOB_NODELIST has {text!r} in brackets, which are not numbers")
        found += [str(number).zfill(len(first)) for number in range(int(first), int(last if dash else first) + 1)]
    return found


def counts_of(text: str) -> tuple[int, ...]:
    """Expand numbers of tasks: ``2(x3),1`` is 2, 2, 2, 1. Empty if it is no such list."""
    counts: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"([0-9]+)(?:\(x([0-9]+)\))?", part)
        if found is None:
            return ()
        counts += [int(found[1])] * int(found[2] or 1)
    return tuple(counts)


class _SrunLink(AgentLink):
    """An agent at the end of connections that the node's slurmstepd has made to srun, of which the agent knows none."""

    def connections(self) -> list[str]:
        """As in the base."""
        return seen_from_there(accepted_by(self.pid))


@dataclass(frozen=True)
class Srun:
    """How agents are started on the nodes of an allocation: see launch/reach.py."""

    environ: Mapping[str, str]
    remote_python: str | None = None
    label: str = "srun"

    def is_here(self, host: str) -> bool:
        """Whether an agent on ``host`` is a child of this process: only where there is no srun.

        A step on this node too gets the signals that Slurm sends to all steps, and all that the allocation has here.
        """
        is_own = host == socket.gethostname().partition(".")[0] or ssh.is_local(host)
        return is_own and shutil.which("srun") is None

    def command(self, host: str, python: str, python_path: str) -> list[str]:
        """The agent on ``host``, by a step of one task. No secret is in it."""
        program = shutil.which("srun")
        if program is None:
            raise LaunchError("no srun on the PATH: ranks on the other nodes of the allocation cannot be started")
        unset = [*(f"SLURM_{name}" for name in _OPTIONS), *_OF_A_HOST]
        command = ["env", *(word for name in unset for word in ("-u", name)), program]
        command += [f"--jobid={self.environ['SLURM_JOB_ID']}", "--nodes=1", "--ntasks=1", f"--nodelist={host}"]
        command += ["--overlap", "--cpu-bind=none", "--mpi=none", "--export=ALL", "--job-name=ciranda", "--quiet"]
        return [*command, *ssh.agent_words(python if self.remote_python is None else self.remote_python, python_path)]

    def link(self, host: str, slots: Sequence[Slot], python: str, python_path: str) -> AgentLink:
        """As in launch/reach.py."""
        link = _SrunLink(host, slots, self.command(host, python, python_path))
        link.silence = Silence(of_process(link.pid), LATER_THAN_RANKS * limit_of(self.environ))
        return link

    def resolved_name(self, host: str) -> tuple[str, bool]:
        """The host itself, and whether this machine knows its address: it may be known to Slurm alone."""
        try:
            socket.getaddrinfo(host, 0)
        except (OSError, UnicodeError):
            return host, False
        return host, True

    def explain(self, host: str, exit_code: int, stderr: str) -> str:
        """One clear error for an agent on ``host`` that did not start."""
        words = stderr.replace(ssh.MISSING, "").strip()
        meaning = next((meaning for sign, meaning in _COMPLAINTS if sign in stderr), "srun did not start the agent")
        said = f"\n  it said: {words}" if words else ""
        return f"cannot start ranks on {host}: {meaning} (exit code {exit_code}){said}"


# What srun says -> its meaning and the remedy. The first that matches counts.
_COMPLAINTS = (
    (ssh.MISSING, "no ciranda package in Python there: install it on every node, or in a folder that all share"),
    ("No such file or directory", "that Python is not there: install it at the same path on every node"),
    ("job/step already completing", "the job is ending: its time is over, or it was cancelled"),
    ("Invalid job id", "the allocation is over, or SLURM_JOB_ID is left over: write -H localhost:N for this machine"),
    ("Unable to create step", "Slurm gives the job no step there"),
    ("unrecognized option", "this srun lacks an option: Slurm 20.11 or later is needed"),
    ("Node failure", "the node has failed"),
)  # fmt: skip


def srun_for(hosts: Sequence[str], options: ssh.SshOptions, environ: Mapping[str, str] = os.environ) -> Srun | None:
    """Return how to reach ``hosts`` by srun, if they are nodes of the allocation and no option of ssh is given."""
    if options != ssh.SshOptions(remote_python=options.remote_python):
        return None
    found = allocation(environ)
    if found is None or not set(hosts) <= set(found.nodes):
        return None
    return Srun(environ, options.remote_python)
