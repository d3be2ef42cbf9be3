"""A barrier task: an agent, whose rank is a child. The task of rank 0 also holds the launcher.

All tasks of a stage exchange messages by Spark's ``allGather``: where each is, then where the launcher listens, and the
secret, a new one in each attempt. What a function does (it raises, exits or is killed) is a result of the task, which
has the rank's traceback. A lost task is an error of the others: then Spark ends the stage, and says which was lost.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ciranda.engines.local_ranks import host_id
from ciranda.launch import call
from ciranda.launch.dialled import Dialled
from ciranda.launch.dialling import dial
from ciranda.launch.errors import LaunchError
from ciranda.launch.failure import RankFailure
from ciranda.launch.gathering import Gathering, dismiss
from ciranda.launch.handshake import Terms, ranks_secret
from ciranda.launch.hosts import Slot, positions
from ciranda.launch.job import Job, Outcome, Show
from ciranda.launch.launcher import launch_by
from ciranda.launch.output import ScreenStyle
from ciranda.launch.relay import Relay
from ciranda.launch.signals import InterruptedBySignalError, interruptible

_LOST_A_TASK = 75  # the exit code of a job that lost a task, as in kubernetes.py
_BY_SIGNAL = 128  # and its number


@dataclass(frozen=True)
class Wanted:
    """What the driver asks for: the pickled function, and the options of run()."""

    payload: bytes
    env: Mapping[str, str] = field(default_factory=dict)
    start_timeout: float = 30.0
    network_interface: str | None = None
    python: str | None = None
    verbose: bool = False


@dataclass(frozen=True)
class Ended:
    """How all ranks ended: their pickled results in rank order, or why there are none."""

    results: list[bytes]
    message: str = ""
    exit_code: int = 0
    failure: RankFailure | None = None


@dataclass(frozen=True)
class Told:
    """What the tasks of an attempt have told each other; ``tasks`` are their numbers in the order of ranks."""

    slots: list[Slot]
    tasks: list[int]

    @classmethod
    def by(cls, claims: Sequence[Mapping[str, str]]) -> Told:
        """Number the ranks: those of a machine follow one another, machines in the order of their first tasks."""
        machines = [claim["machine"] for claim in claims]
        order = sorted(range(len(claims)), key=lambda task: machines.index(machines[task]))
        slots = positions([machines[task] for task in order])
        # A name for each task: the launcher tells agents apart by it.
        names = [f"{claims[task]['host']}/task-{task}" for task in order]
        return cls([replace(slot, host=name) for slot, name in zip(slots, names, strict=True)], order)


def run_in_task(context: Any, wanted: Wanted) -> Iterator[Ended]:
    """Run this task's part of the job; the task of rank 0 yields how it ended.

    Raises:
        LaunchError: a task is gone, or did not come.
    """
    number = context.partitionId()
    claim = {"machine": host_id(), "host": socket.gethostname()}
    told = Told.by([json.loads(text) for text in context.allGather(json.dumps(claim))])
    rank = told.tasks.index(number)
    try:
        with interruptible(), _modules_for_ranks():
            if rank == 0:
                yield _lead(context, wanted, told)
            else:
                _follow(context, wanted, told, rank)
    except InterruptedBySignalError as signal:
        raise LaunchError(f"{signal} has ended task {number}", 128 + signal.number) from None


@contextmanager
def _modules_for_ranks() -> Iterator[None]:
    """Let ranks, which are children, import what this task can, such as files of ``SparkContext.addPyFile``."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _follow(context: Any, wanted: Wanted, told: Told, rank: int) -> None:
    (where,) = [json.loads(text) for text in context.allGather("") if text]
    terms = Terms(bytes.fromhex(where["secret"]), where["job"], len(told.slots))
    address = (_host_of_task(context, told.tasks[0]), int(where["port"]))
    channel = dial([address], terms, rank, wanted.start_timeout, _say)
    try:
        launcher = told.slots[0].host
        code = Relay(told.slots[rank].host, channel, terms.secret, ScreenStyle(prefix=True), launcher).run()
    finally:
        channel.socket.close()
    # The launcher's own task says why the job has failed, also if it has refused this one: Spark tells one reason only.
    if code is not None and code < _BY_SIGNAL:
        return
    reason = f"the connection to {launcher}, which holds the launcher, has ended" if code is None else "a signal came"
    raise LaunchError(f"{told.slots[rank].host}: {reason}", _LOST_A_TASK)


def _host_of_task(context: Any, task: int) -> str:
    """Where the executors reach the one of this task, by Spark's own configuration."""
    return str(context.getTaskInfos()[task].address).rpartition(":")[0].strip("[]")


def _lead(context: Any, wanted: Wanted, told: Told) -> Ended:
    # The number of the attempt: Spark gives each another one.
    terms = Terms(os.urandom(32), f"stage {context.stageId()} attempt {context.taskAttemptId()}", len(told.slots))
    gathering = Gathering(0, terms)
    try:
        context.allGather(json.dumps({"job": terms.job, "secret": terms.secret.hex(), "port": gathering.port}))
        if not gathering.wait(wanted.start_timeout, lambda: None):
            missing = ", ".join(told.slots[rank].host for rank in gathering.missing)
            raise LaunchError(f"{missing} did not come within {wanted.start_timeout:g} s", _LOST_A_TASK)
        channels = gathering.take()
    finally:
        gathering.close()
    verdict = _LOST_A_TASK
    try:
        of_host = {told.slots[rank].host: channel for rank, channel in channels.items()}
        is_one_machine = told.slots[0].n_hosts == 1
        tasks = Dialled(told.slots[0].host, of_host, "its own task", "its executor's log", is_one_machine)
        show = Show(ScreenStyle(prefix=True), verbose=wanted.verbose)
        ended = _ended(launch_by(tasks, _job_of(wanted, told, terms.secret), show), len(told.slots))
        verdict = 0
    finally:
        dismiss(channels, verdict)
    return ended


def _job_of(wanted: Wanted, told: Told, secret: bytes) -> Job:
    job_id = os.urandom(8).hex()
    python = wanted.python or sys.executable
    return Job(
        argv=[python, "-m", call.__name__],
        slots=told.slots,
        env={"CIRANDA_START_TIMEOUT": str(wanted.start_timeout), **wanted.env},
        cwd=".",  # each agent's own
        start_timeout_seconds=wanted.start_timeout,
        network_interface=wanted.network_interface,
        blobs={call.PAYLOAD: wanted.payload},
        want_results=True,
        job_id=job_id,
        secret=ranks_secret(secret, job_id),
        forwards_env=False,
        lost_host_code=_LOST_A_TASK,
    )


def _ended(outcome: Outcome, size: int) -> Ended:
    """Return how the ranks ended; LaunchError if Spark ends the job, or a task is gone."""
    failure = outcome.failure
    is_lost = outcome.exit_code == _LOST_A_TASK and (failure is None or failure.is_secondhand)
    if is_lost or outcome.interrupted_by is not None:
        raise LaunchError(outcome.message or "a signal has ended the job", outcome.exit_code)
    if outcome.exit_code != 0:
        return Ended([], outcome.message or "the job failed", outcome.exit_code, failure)
    missing = [rank for rank in range(size) if rank not in outcome.results]
    if missing:
        return Ended([], f"rank {missing[0]} ended without a result: the function must return, not exit", 1)
    return Ended([b"".join(outcome.results.pop(rank)) for rank in range(size)])


def _say(text: str) -> None:
    sys.stderr.write(f"ciranda: {text}\n")
