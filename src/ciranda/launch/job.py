"""What to run, how to show it, and how it ended: plain data."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from ciranda.launch.elastic import ElasticJob
from ciranda.launch.errors import LaunchError
from ciranda.launch.failure import RankFailure
from ciranda.launch.hosts import Slot
from ciranda.launch.output import ScreenStyle
from ciranda.launch.output_dir import OutputDir
from ciranda.launch.protocol import BINDINGS
from ciranda.launch.stragglers import SHARE
from ciranda.launch.trace_writer import TraceFile
from ciranda.launch.writer import Writer


def working_directory() -> str:
    """Where this process is; LaunchError if that is gone."""
    try:
        return os.getcwd()
    except OSError as error:
        raise LaunchError(f"the working directory cannot be used: {error.strerror}; change to another") from None


def default_binding() -> str:
    """What CIRANDA_BIND_TO says; LaunchError if that is no binding."""
    text = os.environ.get("CIRANDA_BIND_TO") or BINDINGS[0]
    if text.lower() not in BINDINGS:
        known = f"{', '.join(BINDINGS[:-1])} or {BINDINGS[-1]}"
        raise LaunchError(f"CIRANDA_BIND_TO={text!r}: must be {known}", exit_code=2)
    return text.lower()


@dataclass
class Job:
    """What to run.

    Attributes:
        argv: the command, the same for every rank.
        slots: from hosts.assign().
        env: set for every rank on top of the forwarded environment.
        exclude_env: names or patterns not to forward.
        grace_seconds: from SIGTERM to SIGKILL.
        start_timeout_seconds: for all agents to answer.
        network_interface, port_range: what the store listens on; the ranks are told by ``env``.
        blobs: variables, each to hold the path of a file with this content.
        bind_to: "core" gives each rank its share of its host's cores, "numa" those of a NUMA node; "none" leaves it to
            the system. By default what CIRANDA_BIND_TO says, or "none".
        jax_native: have JAX's own collectives come by the ranks' world.
        elastic: go on when ranks are lost; a slot's number then is the rank of its first process. None: end the job.
        metrics: where each agent serves metrics, ``ADDR:PORT``; empty for nowhere.
        metrics_dir: the folder in which each agent writes a file with metrics; empty for none.
        recorded_steps: after how many steps ranks begin to record their calls for the timeline, and after how many they
            cease, 0: at the end. None: they record none.
        straggler_share: of the time: a rank for which the others wait so much longer is warned of; 0: of none.
        want_results: give each rank a pipe CIRANDA_RESULT_FD; what it writes there is in Outcome.results.
        job_id, secret: what tells this job from others, and by what its ranks know each other, in hex.
        forwards_env: whether ranks inherit the launcher's environment, and not that of their own host's agent.
        lost_host_code: the exit code if a host does not come, or is lost; None: 1, or that of a rank that lost others.
    """

    argv: list[str]
    slots: list[Slot]
    env: Mapping[str, str] = field(default_factory=dict)
    exclude_env: list[str] = field(default_factory=list)
    cwd: str = field(default_factory=working_directory)
    grace_seconds: float = 1.0
    start_timeout_seconds: float = 30.0
    network_interface: str | None = None
    port_range: str | None = None
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    bind_to: str = field(default_factory=default_binding)
    jax_native: bool = False
    elastic: ElasticJob | None = None
    metrics: str = ""
    metrics_dir: str = ""
    recorded_steps: tuple[int, int] | None = None
    straggler_share: float = SHARE
    want_results: bool = False
    python: str = field(default_factory=lambda: sys.executable)
    job_id: str = field(default_factory=lambda: os.urandom(8).hex())
    secret: str = field(default_factory=lambda: os.urandom(32).hex(), repr=False)
    forwards_env: bool = True
    lost_host_code: int | None = None


@dataclass
class Show:
    """How to show it, and where. Without ``report``, what a rank failed with is only in the outcome.

    ``timeline``: the file for what the ranks record, if they do.
    """

    screen: ScreenStyle = field(default_factory=ScreenStyle)
    output_dir: OutputDir | None = None
    verbose: bool = False
    report: bool = True
    writer: Writer = field(default_factory=Writer)
    timeline: TraceFile | None = None


@dataclass
class Outcome:
    """How it ended: ``exit_code`` 0 is well; else ``failure`` is the rank to blame, if one is, and ``message`` why.

    ``results`` are the pieces of what each rank's function returned, in order; ``ranks`` are the numbers of an elastic
    job's last ranks, in their order there.
    """

    exit_code: int = 0
    failure: RankFailure | None = None
    message: str | None = None
    interrupted_by: int | None = None
    results: dict[int, list[bytes]] = field(default_factory=dict)
    ranks: list[int] = field(default_factory=list)
