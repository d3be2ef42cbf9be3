"""`horovod.runner.common.util.safe_shell_exec`: a shell command that ends with all that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

__all__ = ["GRACEFUL_TERMINATION_TIME_S", "execute", "terminate_executor_shell_and_children"]

#: From SIGTERM to SIGKILL.
GRACEFUL_TERMINATION_TIME_S = 5

_LOOK_S = 0.05


def terminate_executor_shell_and_children(pid: int) -> None:
    """End the process group of `pid`: SIGTERM, and after GRACEFUL_TERMINATION_TIME_S SIGKILL."""
    if not _signal(pid, signal.SIGTERM):
        return
    end = time.monotonic() + GRACEFUL_TERMINATION_TIME_S
    while time.monotonic() < end:
        if not _signal(pid, 0):
            return
        time.sleep(_LOOK_S)
    _signal(pid, signal.SIGKILL)


def _signal(group: int, number: int) -> bool:
    """Whether there was anybody to send it to."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def execute(
    command: str | Sequence[str],
    env: Mapping[str, str] | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    index: int | None = None,
    events: Sequence[threading.Event] | None = None,
    prefix_output_with_timestamp: bool = False,
) -> int:
    """Run a shell command (or a program with arguments) in a process group of its own; return its exit code.

    Args:
        command: text for the shell, or a list of words.
        env: the whole environment; by default this process's.
        stdout, stderr: where its output goes, line by line; by default this process's own.
        index: stands as `[index]<stdout>:` before each line.
        events: when one of them is set, the command is ended with all that it started.
        prefix_output_with_timestamp: the time before each line.
    """
    process = subprocess.Popen(
        command,
        shell=isinstance(command, str),
        env=None if env is None else dict(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    streams = ((process.stdout, stdout or sys.stdout, "stdout"), (process.stderr, stderr or sys.stderr, "stderr"))
    readers = [
        threading.Thread(target=_pass_on, args=(*stream, index, prefix_output_with_timestamp)) for stream in streams
    ]
    for reader in readers:
        reader.start()
    try:
        code = _wait(process, events or ())
    except BaseException:
        terminate_executor_shell_and_children(process.pid)
        raise
    finally:
        for reader in readers:
            reader.join()
    return code


def _wait(process: subprocess.Popen[str], events: Sequence[threading.Event]) -> int:
    if not events:
        return process.wait()
    while True:
        try:
            return process.wait(_LOOK_S)
        except subprocess.TimeoutExpired:
            if any(event.is_set() for event in events):
                # Somebody must take its exit code, or the group is never seen to have ended.
                waiter = threading.Thread(target=process.wait)
                waiter.start()
                terminate_executor_shell_and_children(process.pid)
                waiter.join()
                return process.returncode


def _pass_on(source: Any, target: TextIO, name: str, index: int | None, has_time: bool) -> None:
    prefix = "" if index is None else f"[{index}]<{name}>:"
    with source:
        for line in source:
            stamp = time.strftime("%a %b %d %H:%M:%S %Y") if has_time else ""
            target.write(stamp + prefix + line)
            target.flush()
