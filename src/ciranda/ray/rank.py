"""A rank: an actor of Ray. Its driver tells it its place by calls, so that the secret is in no environment and no log.

The functions run on the actor's main thread, one after another. After one that raised, the rank leaves the world, so
that ranks which wait for it fail too.
"""

from __future__ import annotations

import io
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray

import ciranda
from ciranda import _afresh
from ciranda.engines import rendezvous
from ciranda.engines.local_ranks import host_id
from ciranda.launch import environment
from ciranda.launch import store as stores
from ciranda.launch.failure import traceback_text
from ciranda.launch.hosts import Slot
from ciranda.launch.kept_globals import KeptGlobals
from ciranda.launch.shared_file import SharedFile, secret_file


@dataclass(frozen=True)
class Whereabouts:
    """Where Ray has started the actor: its node, the machine, how it is called, the GPUs of the actor there.

    And which version of Ciranda is there.
    """

    node: str
    machine: str
    host: str
    gpus: list[str]
    pid: int
    version: str


@dataclass(frozen=True)
class Job:
    """What all ranks have in common; ``store`` is where they meet."""

    job_id: str
    secret: str = field(repr=False)
    store: str = ""


@dataclass(frozen=True)
class Ended:
    """How a function ended: ``value`` is its result, or the traceback if ``has_raised``."""

    has_raised: bool
    value: Any


class Rank:
    """The actor. Calls come in the order of its methods; those from call() on repeat."""

    def __init__(self, env: Mapping[str, str]) -> None:
        inherited = environment.forwarded(os.environb, remote=False)  # without the identity in an outer job
        for name in set(os.environb) - set(inherited):
            del os.environb[name]
        os.environ.update(env)
        self._store: stores.Store | None = None
        self._secret: SharedFile | None = None
        self._functions = _Functions()

    def whereabouts(self) -> Whereabouts:
        """Return where this is."""
        node = ray.get_runtime_context().get_node_id()
        gpus = [str(gpu) for gpu in ray.get_gpu_ids()]
        return Whereabouts(node, host_id(), socket.gethostname(), gpus, os.getpid(), ciranda.__version__)

    def host_store(self, job: Job, size: int, is_on_one_machine: bool) -> str:
        """Host the rendezvous of all ranks; return where it is.

        Raises:
            LaunchError: it cannot listen.
        """
        self._store, where = rendezvous.open_store(job.secret, job.job_id, size, is_on_one_machine)
        return where

    def join(self, job: Job, slot: Slot, gpus: list[str]) -> None:
        """Take a place in the job; ``gpus`` are those of all ranks of this node, in the order of local ranks."""
        self._secret = secret_file(job.secret)
        told = {name: value for name, value in environment.identity(slot).items() if name.startswith(_PREFIXES)}
        told |= {"CIRANDA_STORE": job.store, "CIRANDA_JOB": job.job_id, "CIRANDA_SECRET_FILE": self._secret.path}
        if gpus:
            told["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        os.environ.update(told)

    def make(self, payload: bytes) -> None:
        """Make the object that is passed to functions which want it."""
        self._functions.make(payload)

    def settled(self) -> tuple[bool, int]:
        """Return whether a function has failed here since the ranks last met, and the next world's number."""
        return self._functions.has_failed, _afresh.next_epoch()

    def begin(self, epoch: int) -> None:
        """Leave the world: the ranks meet anew in that of this number."""
        _afresh.leave_for(epoch)
        self._functions.has_failed = False

    def attempt(self, payload: bytes) -> Ended:
        """Call a function; return its result or traceback."""
        try:
            return Ended(False, self._functions.call(payload))
        except BaseException as error:
            return Ended(True, traceback_text(error, __file__))

    def call(self, payload: bytes) -> Any:
        """Call a function, and return its result; what it raises is raised, SystemExit as a RuntimeError."""
        return self._functions.call(payload)


class _Functions:
    """Calls functions. Not the actor's own methods, which Ray wraps: its frames would be in every traceback."""

    def __init__(self) -> None:
        self.executable: Any = None
        self.has_failed = False
        self._runs = False
        self._globals = KeptGlobals()
        signal.signal(signal.SIGINT, self._on_interruption)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # which Ray blocks

    def _on_interruption(self, _number: int, _frame: object) -> None:
        if self._runs:
            raise KeyboardInterrupt

    def make(self, payload: bytes) -> None:
        self.executable = self._globals.load(io.BytesIO(payload))()

    def call(self, payload: bytes) -> Any:
        try:
            wants_executable, function = self._globals.load(io.BytesIO(payload))
            try:
                self._runs = True
                return function(self.executable) if wants_executable else function()
            finally:
                self._runs = False
        except BaseException as error:  # also SystemExit: the rank stays
            self.has_failed = True
            ciranda.shutdown()
            if isinstance(error, Exception):
                raise
            raise RuntimeError(f"the function did not return: {type(error).__name__}: {error}") from error


def interrupt(pids: Sequence[int]) -> None:
    """Interrupt the functions of ranks on this node, which Ray itself cannot."""
    for pid in pids:
        with suppress(OSError):  # it has ended
            if b"ray::" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGINT)


# Those of other launchers are left to what the function starts, such as torch's own process group.
_PREFIXES = ("CIRANDA_", "HOROVOD_")
