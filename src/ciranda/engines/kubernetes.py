"""Kubernetes as the host of a job: a pod for each host, all with the same command, that find each other by their index.

The pod of index 0 holds the launcher; the others' agents connect to it, at its name in the headless Service. They know
each other by a secret, which Kubernetes mounts as a file. Exit codes say what Kubernetes is to do: see manifests.py.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ciranda.launch.dialled import Dialled
from ciranda.launch.dialling import dial
from ciranda.launch.errors import LaunchError
from ciranda.launch.gathering import Gathering, dismiss
from ciranda.launch.handshake import Terms, ranks_secret
from ciranda.launch.hosts import Host, assign
from ciranda.launch.job import Job, Show
from ciranda.launch.launcher import launch_by
from ciranda.launch.output import terminal_style
from ciranda.launch.relay import Relay
from ciranda.launch.signals import InterruptedBySignalError, interruptible

#: The exit code of a job that lost a host, on all others: it may be started anew (sysexits.h: EX_TEMPFAIL).
LOST_A_HOST = 75
PORT = 29333
SECRET_FILE = "/var/run/secrets/ciranda/secret"
INDEX = "JOB_COMPLETION_INDEX"

_TELL_SECONDS = 2.0  # until a line about hosts that have not come; the next ones after twice as long each
_MARGIN_SECONDS = 15.0  # an agent waits longer than its launcher, which knows who is missing


@dataclass(frozen=True)
class Pod:
    """This pod, and its job.

    Attributes:
        index, n_hosts, slots: this pod's index, the number of pods, and of ranks in each.
        launcher: the name of the pod of index 0 in the network, of which the first word ends with that index.
        port: where the launcher listens.
        secret_file: has the secret, in 64 hex digits.
        start_timeout: seconds for all pods to come.
        grace: seconds from SIGTERM to SIGKILL.
    """

    index: int
    n_hosts: int
    slots: int
    launcher: str
    port: int = PORT
    secret_file: str = SECRET_FILE
    start_timeout: float = 600.0
    grace: float = 1.0

    def name(self, index: int) -> str:
        """The name of a pod, as Kubernetes calls its host."""
        return re.sub(r"0\Z", str(index), self.launcher.partition(".")[0])


def index_of(environ: Mapping[str, str]) -> int:
    """Return this pod's index; LaunchError if Kubernetes has given it none."""
    text = environ.get(INDEX, "")
    if not text.isdigit():
        raise LaunchError(f"{INDEX}={text!r}: this is no pod of an indexed Job; see 'ciranda kubernetes manifest'", 2)
    return int(text)


def run_in_pod(pod: Pod, command: Sequence[str]) -> int:
    """Run this pod's part of the job to its end; the exit code.

    Raises:
        LaunchError: the secret cannot be used, or the launcher does not answer.
    """
    if not 0 <= pod.index < pod.n_hosts:
        raise LaunchError(f"{INDEX}={pod.index}: a job of {pod.n_hosts} hosts has no such one", exit_code=2)
    terms = Terms(_secret_of(Path(pod.secret_file)), pod.launcher, pod.n_hosts)
    try:
        with interruptible():
            return _lead(pod, terms, command) if pod.index == 0 else _follow(pod, terms)
    except InterruptedBySignalError as signal:
        _say(f"{signal} has ended {pod.name(pod.index)}")
        return 128 + signal.number


def _secret_of(path: Path) -> bytes:
    try:
        text = path.read_text(encoding="ascii").strip()
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise LaunchError(f"the job's secret, {path}, cannot be read: {error}", exit_code=2) from None
    if stat.S_IMODE(mode) & 0o007:
        raise LaunchError(f"{path} has the job's secret, and everybody may read it: set defaultMode to 0400", 2)
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise LaunchError(f"{path}: the job's secret must be 64 hex digits, as of 'openssl rand -hex 32'", exit_code=2)
    return bytes.fromhex(text)


def _follow(pod: Pod, terms: Terms) -> int:
    try:
        channel = dial([(pod.launcher, pod.port)], terms, pod.index, pod.start_timeout + _MARGIN_SECONDS, _say)
    except LaunchError as error:
        raise LaunchError(f"{pod.name(pod.index)}: {error}", LOST_A_HOST) from None
    try:
        code = Relay(pod.name(pod.index), channel, terms.secret, terminal_style(), pod.name(0)).run()
    finally:
        channel.socket.close()
    return LOST_A_HOST if code is None else code


def _lead(pod: Pod, terms: Terms, command: Sequence[str]) -> int:
    job = _job_of(pod, terms.secret, command)
    try:
        gathering = Gathering(pod.port, terms)
    except OSError as error:
        raise LaunchError(f"cannot listen on port {pod.port}: {error.strerror}", LOST_A_HOST) from None
    try:
        if not gathering.wait(pod.start_timeout, _telling(gathering, pod)):
            raise LaunchError(
                f"{_names(gathering, pod)} did not come within {pod.start_timeout:g} s: 'kubectl describe pod' and its "
                "log say why",
                LOST_A_HOST,
            )
        channels = gathering.take()
    finally:
        gathering.close()
    code, reason = 1, None
    try:
        by_name = {pod.name(index): channel for index, channel in channels.items()}
        pods = Dialled(pod.name(0), by_name, label="its own pod", log="its log")
        outcome = launch_by(pods, job, Show(terminal_style()))
        code, reason = outcome.exit_code, outcome.message
    except LaunchError as error:
        code, reason = error.exit_code, str(error)
        raise
    except InterruptedBySignalError as signal:
        code = 128 + signal.number
        raise
    finally:
        dismiss(channels, code, reason)
    return code


def _job_of(pod: Pod, secret: bytes, command: Sequence[str]) -> Job:
    job_id = os.urandom(8).hex()
    return Job(
        argv=list(command),
        slots=assign([Host(pod.name(index), pod.slots) for index in range(pod.n_hosts)]),
        grace_seconds=pod.grace,
        job_id=job_id,
        secret=ranks_secret(secret, job_id),
        forwards_env=False,
        lost_host_code=LOST_A_HOST,
    )


def _telling(gathering: Gathering, pod: Pod) -> Callable[[], None]:
    """What says, now and then, for whom the launcher waits."""
    wait = _TELL_SECONDS
    at = time.monotonic() + wait

    def tell() -> None:
        nonlocal at, wait
        if gathering.missing and time.monotonic() >= at:
            _say(f"waiting for {_names(gathering, pod)}")
            wait *= 2
            at = time.monotonic() + wait

    return tell


def _names(gathering: Gathering, pod: Pod) -> str:
    missing = gathering.missing
    more = f" and {len(missing) - 10} others" if len(missing) > 10 else ""
    return ", ".join(pod.name(index) for index in missing[:10]) + more


def secret_text() -> str:
    """Return a new secret."""
    return os.urandom(32).hex()


def _say(text: str) -> None:
    sys.stderr.write(f"ciranda: {text}\n")
