"""`horovod.runner.gloo_run`: running a command on every rank, for tools that start jobs from Python.

Ciranda's launcher starts the ranks. There is no rendezvous server to tell them of, and no command for one rank that a
tool could run by itself: each rank needs the job's secret, which no command line holds.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from horovod.runner import _HorovodArgs, launch
from horovod.runner.common.util.env import is_exportable

__all__ = ["MultiFile", "create_slot_env_vars", "gloo_run", "register_shutdown_event"]


class MultiFile:
    """Several files that are written as one."""

    def __init__(self, files: Iterable[Any]) -> None:
        self._files = list(files)

    def write(self, text: str) -> None:
        """To each."""
        for file in self._files:
            file.write(text)

    def flush(self) -> None:
        """Each."""
        for file in self._files:
            file.flush()


def create_slot_env_vars(slot_info: Any) -> dict[str, str]:
    """The variables that tell a rank who it is, of a `SlotInfo`."""
    places = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
    names = {f"HOROVOD_{place.upper()}": str(getattr(slot_info, place)) for place in places}
    return {"HOROVOD_HOSTNAME": str(slot_info.hostname), **names}


def register_shutdown_event() -> threading.Event:
    """Return an event that SIGINT and SIGTERM set from now on, instead of what they did."""
    event = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: event.set())
    return event


def gloo_run(
    settings: Any,
    nics: Iterable[str] | None,
    env: Mapping[str, str] | None,
    server_ip: str | None,
    command: Sequence[str],
) -> None:
    """Run `command` on every rank; return when all have ended.

    Args:
        settings: a `horovod.runner.common.util.settings.Settings`: `num_proc`, `hosts`, and how to reach them.
        nics: network interfaces; the first is used.
        env: what ranks find in their environment, besides what they get from this process's.
        server_ip: accepted, and of no effect: ranks find each other through the launcher.
        command: a program and its arguments.

    Raises:
        RuntimeError: a rank failed.
        ValueError: the hosts or their number make no sense.
    """
    args = _HorovodArgs()
    args.command = list(command)
    args.num_proc, args.hosts = settings.num_proc, getattr(settings, "hosts", None)
    args.ssh_port, args.ssh_identity_file = settings.ssh_port, settings.ssh_identity_file
    args.output_filename, args.verbose = settings.output_filename, bool(settings.verbose)
    args.prefix_output_with_timestamp = settings.prefix_output_with_timestamp
    args.nics = set(nics or settings.nics or ())
    seconds = settings.start_timeout
    args.start_timeout = seconds if isinstance(seconds, (int, float)) else None
    given = {name: value for name, value in (env or {}).items() if os.environ.get(name) != value}
    launch.run_or_raise(args, {name: value for name, value in given.items() if is_exportable(name)})
