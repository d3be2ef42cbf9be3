"""The stacks of this process for whoever started it, also while its threads wait, or compute in C.

The agent of `ciranda run` asks by a byte in a pipe, whose number it reads from the name of a file in memory. A thread
of the engine then takes the GIL, so that no other thread runs Python code meanwhile, and writes the stacks of all
threads to that file. If a thread keeps the GIL in C code, the agent sends SIGURG to the thread that waits for it: the
handler, faulthandler's, needs no GIL, and reads stacks that do not change, since no other thread can run Python code
either.

No other thread is interrupted, and a process that has not called `watch()` ignores SIGURG. The agent's part is
`ciranda.launch.stacks`, which has the names from here.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

#: What the file's name begins with; the number of the pipe follows.
FILE_NAME = "ciranda-stacks-"
#: The name of the engine's thread.
THREAD_NAME = "ciranda-stacks"
SIGNAL = signal.SIGURG
#: The last line of a dump that is complete.
END = "# end\n"
#: What stands in the file for requests of another kind: before a path, to have calls written there from now on; and to
#: write no more. And the answer to the latter.
RECORD, RECORD_END, RECORDED = b"record ", b"record-end", "# recorded\n"

_MOST_FRAMES = 200
_MOST_REQUEST_BYTES = 4096


class _Watch:
    def __init__(self) -> None:
        self.pid = 0


_watch = _Watch()


def watch() -> None:
    """Answer an agent from now on. Does nothing without one, or when called again."""
    if "CIRANDA_JOB" not in os.environ or _watch.pid == os.getpid():
        return
    from ciranda import _core  # an agent, which may have no engine, imports the names above

    with contextlib.suppress(OSError):  # no descriptor is left: then there are no stacks
        request, _keep_open = os.pipe()
        file = os.memfd_create(f"{FILE_NAME}{_keep_open}")
        fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)  # the agent empties the file
        if signal.getsignal(SIGNAL) == signal.SIG_DFL:
            faulthandler.register(SIGNAL, file=file, all_threads=True, chain=False)
        _core.watch_stacks(request, SIGNAL, lambda: _answer(file))
        _watch.pid = os.getpid()


def _answer(file: int) -> None:
    """Do what the agent asks for."""
    request = os.pread(file, _MOST_REQUEST_BYTES, 0)
    if request.startswith(RECORDED.encode()):  # what came after the last request to record
        return
    if request.startswith(RECORD):
        _record(os.fsdecode(request.removeprefix(RECORD)))
    elif request.startswith(RECORD_END):
        _record(None)
        os.ftruncate(file, 0)
        os.write(file, RECORDED.encode())
    else:
        _dump(file)


def _record(path: str | None) -> None:
    """Have the engine write this process's calls to a file, or to none; in the world that it is in."""
    from ciranda._basics import world  # an agent has none

    if world.engine is None:
        return
    if path is None:
        world.engine.stop_records()
    else:
        world.engine.start_records(path)


def _dump(file: int) -> None:
    """Write the stacks of all threads but this one, the main thread's first."""
    main = threading.main_thread().ident
    frames = sys._current_frames()
    frames.pop(threading.get_ident(), None)
    names = {thread.ident: thread.name for thread in list(threading._active.values())}  # type: ignore[attr-defined]
    text = ""
    for ident in sorted(frames, key=lambda ident: ident != main):
        text += f"Thread 0x{ident:016x} {names.get(ident, '')} (most recent call first):\n"
        text += "".join(_lines(frames[ident])) + "\n"
    data = (text + END).encode("utf-8", "backslashreplace")
    while data:
        data = data[os.write(file, data) :]


def _lines(frame: FrameType | None) -> Iterator[str]:
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return
        yield f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_name}\n'
        frame = frame.f_back
    yield "  ...\n"
