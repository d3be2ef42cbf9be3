"""`horovod.runner.common.util.safe_shell_exec`: a shell command that ends with all that it has started."""

from __future__ import annotations

import codecs
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Protocol, TextIO

__all__ = ["GRACEFUL_TERMINATION_TIME_S", "execute", "prefix_connection", "terminate_executor_shell_and_children"]

#: From SIGTERM to SIGKILL.
GRACEFUL_TERMINATION_TIME_S = 5

# Reads the group of the command, and then that it has ended. Where its caller ends before it says so, ends the group.
_WATCH = f"""
read -r group && {{ read -r ended || {{
  kill -s TERM -- -$group && sleep {GRACEFUL_TERMINATION_TIME_S} && kill -s KILL -- -$group; }}; }}
"""

_LOOK_S = 0.05
_MOST_BYTES = 64 << 10


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


class _Source(Protocol):
    """The end of a pipe to read from: a file, or a `multiprocessing.Connection`."""

    def fileno(self) -> int: ...

    def close(self) -> None: ...


def prefix_connection(
    src_connection: _Source,
    dst_stream: TextIO,
    prefix: str | None,
    index: int | None,
    prefix_output_with_timestamp: bool,
) -> None:
    """Write what comes from `src_connection` to `dst_stream`, line by line, until its end; then close it.

    Lines end with `\\n` or `\\r`, so that bars of progress move on.

    Args:
        src_connection: the end of a pipe to read from.
        dst_stream: flushed after each line.
        prefix, index: both given, `[index]<prefix>:` stands before each line.
        prefix_output_with_timestamp: the time before that.
    """
    label = "" if index is None or prefix is None else f"[{index}]<{prefix}>:"
    for line in _lines(src_connection.fileno()):
        stamp = time.asctime() if prefix_output_with_timestamp else ""
        dst_stream.write(stamp + label + line)
        dst_stream.flush()
    src_connection.close()


def _lines(descriptor: int) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    while data := os.read(descriptor, _MOST_BYTES):
        *lines, rest = re.split(r"(?<=\n)|(?<=\r)(?!\n)", rest + decoder.decode(data))
        yield from lines
    rest += decoder.decode(b"", final=True)
    if rest:
        yield rest


def execute(
    command: str | Sequence[str],
    env: Mapping[str, str] | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    index: int | None = None,
    events: Sequence[threading.Event] | None = None,
    prefix_output_with_timestamp: bool = False,
) -> int:
    """Run a shell command (or a program with arguments) in a process group of its own, which ends with its caller.

    If this process ends first, by whatever signal, the group gets SIGTERM, and SIGKILL after
    GRACEFUL_TERMINATION_TIME_S.

    Args:
        command: text for the shell, or a list of words.
        env: the whole environment; by default this process's.
        stdout, stderr: where its output goes, line by line; by default this process's own.
        index: stands as `[index]<stdout>:` before each line.
        events: when one of them is set, the command is ended with all that it started.
        prefix_output_with_timestamp: the time before each line.

    Returns:
        Its exit code; 128 + n where signal n ended it.
    """
    with _watch() as watch:
        process = subprocess.Popen(
            command,
            shell=isinstance(command, str),
            env=None if env is None else dict(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        watch(process.pid)
        return _attend(process, stdout or sys.stdout, stderr or sys.stderr, index, events, prefix_output_with_timestamp)


@contextmanager
def _watch() -> Iterator[Callable[[int], None]]:
    """While in it, a process waits to end the group whose number the yielded function is given, if this one ends."""
    watch = subprocess.Popen(
        ["sh", "-c", _WATCH],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        bufsize=0,
    )
    assert watch.stdin is not None
    try:
        yield lambda group: _say(watch.stdin, group)
    finally:
        _say(watch.stdin, "ended")
        watch.stdin.close()
        watch.wait()


def _say(pipe: IO[bytes] | None, what: object) -> None:
    with suppress(BrokenPipeError):  # somebody has ended it
        assert pipe is not None
        pipe.write(f"{what}\n".encode())


def _attend(
    process: subprocess.Popen[bytes],
    stdout: TextIO,
    stderr: TextIO,
    index: int | None,
    events: Sequence[threading.Event] | None,
    prefix_output_with_timestamp: bool,
) -> int:
    """Pass on what the command writes until it ends, or is to end; its exit code."""
    streams = ((process.stdout, stdout, "stdout"), (process.stderr, stderr, "stderr"))
    readers = [
        threading.Thread(target=prefix_connection, args=(*stream, index, prefix_output_with_timestamp))
        for stream in streams
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
    return code if code >= 0 else 128 - code


def _wait(process: subprocess.Popen[bytes], events: Sequence[threading.Event]) -> int:
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
