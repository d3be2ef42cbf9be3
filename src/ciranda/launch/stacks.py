"""Where the ranks of a host stand: their stacks, taken from outside while they go on.

A rank that has called `ciranda.init()` answers by itself, also while it waits, or computes in C (`ciranda._stacks`). Of
another program py-spy tells the stack, if it is installed and may. What is stopped, or has ended, answers nothing: then
/proc has the reason. Standard library only; runs in a process of its own, since it waits for answers.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from ciranda._stacks import END, FILE_NAME, SIGNAL, THREAD_NAME
from ciranda.launch import in_flight, protocol
from ciranda.launch.page import RankPage
from ciranda.launch.processes import END_SIGNALS, Tree, die_with_parent

ANSWER_SECONDS = 0.5  # for the rank's thread to get the GIL; after it some thread keeps the GIL in C
HANDLER_SECONDS = 0.5
PY_SPY_SECONDS = 5.0
POLL_SECONDS = 0.005
MAX_TEXT_BYTES = 256 << 10

_TGKILL = {"x86_64": 234, "aarch64": 131}
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')
_FRAME_OF_PY_SPY = re.compile(r"    (?P<function>\S.*) \((?P<file>.*):(?P<line>\d+)\)")
# Not the user's: Python's own files, installed packages, this package.
_LIBRARIES = re.compile(r"/lib(64)?/python3|^<frozen|/site-packages/|/dist-packages/")
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_OUTERMOST = "<module>"
_STATES = {
    "T": "stopped by a signal, as SIGSTOP or Ctrl-Z",
    "t": "stopped by a debugger",
    "Z": "its process has ended, but its parent has not taken note",
    "X": "its process has ended",
}


@dataclass(frozen=True)
class Frame:
    """A function under way."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        """``load_batch, data.py:4``."""
        return f"{self.function}, {os.path.basename(self.file)}:{self.line}"

    @property
    def is_users(self) -> bool:
        """Whether it is neither Python's, nor an installed package's, nor ciranda's."""
        return not _LIBRARIES.search(self.file) and not self.file.startswith(_OWN)


def main_frames(text: str) -> list[Frame]:
    """The frames of the first thread in the text, which is the main one, innermost first."""
    frames = []
    for line in text.splitlines():
        found = _FRAME.fullmatch(line) or _FRAME_OF_PY_SPY.fullmatch(line)
        if found:
            frames.append(Frame(found["function"], found["file"], int(found["line"])))
        elif frames:
            break
    return frames


def where(text: str) -> str:
    """``load_batch, data.py:4, called by train, train.py:9``: the user's innermost function and its caller.

    What it has called follows it if that is Python, too: ``load_batch, data.py:4 (in wait, threading.py:320)``. The
    program's outermost level is no caller.
    """
    frames = main_frames(text)
    if not frames:
        return ""
    innermost, *callers = [frame for frame in frames if frame.is_users] or frames[:1]
    called = "" if innermost is frames[0] else f" (in {frames[0]})"
    by = f", called by {callers[0]}" if callers and callers[0].function != _OUTERMOST else ""
    return f"{innermost}{called}{by}"


# -- the processes ---------------------------------------------------------------------------------------------------


@dataclass
class Answering:
    """A process that answers: the ends of its pipe and its file, opened here, and its thread."""

    pid: int
    thread: int
    pipe: int
    file: int

    def ask(self) -> None:
        """Have it write its stacks."""
        os.ftruncate(self.file, 0)
        with suppress(OSError):  # the pipe is full of requests of others, which serve as well
            os.write(self.pipe, b"?")

    def tell(self, request: bytes) -> None:
        """Have it do something else than write its stacks."""
        os.ftruncate(self.file, 0)
        with suppress(OSError):
            os.pwrite(self.file, request, 0)
            os.write(self.pipe, b"?")

    def interrupt(self) -> None:
        """Have the handler write, in the thread that waits for the GIL."""
        number = _TGKILL.get(platform.machine())
        if number is not None and _catches(self.pid, SIGNAL):
            ctypes.CDLL(None).syscall(number, self.pid, self.thread, int(SIGNAL))

    def read(self) -> str:
        """What it has written."""
        return os.pread(self.file, MAX_TEXT_BYTES, 0).decode("utf-8", "replace")

    def close(self) -> None:
        """Leave it alone."""
        os.close(self.pipe)
        os.close(self.file)


def answering_of(pid: int) -> Answering | None:
    """Find the ends of a process that answers; None if it does not."""
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            if target.startswith(f"/memfd:{FILE_NAME}"):
                number = target.removeprefix(f"/memfd:{FILE_NAME}").split()[0]
                return _open(pid, f"/proc/{pid}/fd/{name}", f"/proc/{pid}/fd/{int(number)}")
    except (OSError, ValueError):  # it has gone, or does not let us look
        pass
    return None


def _open(pid: int, file: str, pipe: str) -> Answering | None:
    """None for a child of the one that answers: it has the descriptors, but not the thread."""
    thread = next((tid for tid in map(int, os.listdir(f"/proc/{pid}/task")) if _name_of(pid, tid) == THREAD_NAME), None)
    if thread is None:
        return None
    pipe_fd = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    try:
        return Answering(pid, thread, pipe_fd, os.open(file, os.O_RDWR))
    except OSError:
        os.close(pipe_fd)
        raise


def _name_of(pid: int, thread: int) -> str:
    return _read(f"/proc/{pid}/task/{thread}/comm").strip()


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _catches(pid: int, number: int) -> bool:
    found = re.search(r"^SigCgt:\s*([0-9a-f]+)$", _read(f"/proc/{pid}/status"), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> (number - 1) & 1)


def _state(pid: int) -> str:
    """One letter, as ps shows it; X for a process that has gone."""
    stat = _read(f"/proc/{pid}/stat")
    return stat[stat.rindex(")") + 2] if ")" in stat else "X"


def _below(tree: Tree, pid: int) -> Iterator[int]:
    """``pid`` and its descendants, nearest first."""
    level = [pid]
    while level:
        yield from level
        level = [child for each in level for child in tree.children(each)]


# -- taking them -----------------------------------------------------------------------------------------------------


@dataclass
class _Rank:
    rank: int
    pid: int  # of the process that is the rank, perhaps below what the agent has started
    answering: Answering | None = None
    text: str = ""


def take(
    ranks: Mapping[int, int], pages: Mapping[int, RankPage] | None = None, use_py_spy: bool = True
) -> Iterator[tuple[int, str, str]]:
    """For each rank, given with the process that the agent has started: rank, where it stands in a line, all stacks.

    The calls that its page shows, in flight and ended, are before the stacks; the oldest in flight is also in the line
    where the rank itself cannot say.
    """
    tree = Tree()
    found = [_locate(tree, rank, pid) for rank, pid in ranks.items()]
    try:
        _ask(found)
        if use_py_spy:
            _ask_py_spy([each for each in found if not each.text and _state(each.pid) not in "ZX"])
    finally:
        for each in found:
            if each.answering is not None:
                each.answering.close()
    for each in found:
        page = pages.get(each.rank) if pages else None
        counters = page.totals() if page else {}
        calls, n_calls = counters.get("calls_in_flight", []), counters.get("in_flight", 0)
        text = in_flight.lines(calls, n_calls, page.last_calls() if page else ()) + (each.text or "no stack\n")
        yield each.rank, _line_of(each, in_flight.oldest(calls, n_calls)), text


def _locate(tree: Tree, rank: int, pid: int) -> _Rank:
    for each in _below(tree, pid):
        answering = answering_of(each)
        if answering is not None:
            return _Rank(rank, each, answering)
    # A rank behind a shell or numactl: the last of a line of only children.
    while len(children := tree.children(pid)) == 1:
        pid = children[0]
    return _Rank(rank, pid)


def _ask(ranks: Collection[_Rank]) -> None:
    open_ones = [each for each in ranks if each.answering is not None and _state(each.pid) not in "TtZX"]
    for each in open_ones:
        assert each.answering is not None
        each.answering.ask()
    deadline = time.monotonic() + ANSWER_SECONDS
    while open_ones and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        open_ones = [each for each in open_ones if not _has_answered(each)]
    for each in open_ones:
        assert each.answering is not None
        each.answering.interrupt()
    for each in open_ones:
        _await_handler(each)


def _has_answered(each: _Rank) -> bool:
    assert each.answering is not None
    text = each.answering.read()
    if text.endswith(END):
        each.text = text.removesuffix(END).rpartition(END)[2]  # without the late answer to an earlier request
    return bool(each.text)


def _await_handler(each: _Rank) -> None:
    """The handler has written all once it grows no more. It has the main thread last; here it comes first."""
    assert each.answering is not None
    deadline = time.monotonic() + HANDLER_SECONDS
    before, text = "", each.answering.read()
    while time.monotonic() < deadline and not _has_answered(each) and (not text or text != before):
        time.sleep(4 * POLL_SECONDS)
        before, text = text, each.answering.read()
    if not each.text and text:
        each.text = "\n".join(block.strip("\n") + "\n" for block in reversed(text.rstrip("\n").split("\n\n")))


def _ask_py_spy(ranks: Collection[_Rank]) -> None:
    program = shutil.which("py-spy") or shutil.which("py-spy", path=os.path.dirname(sys.executable))
    if program is None:
        return
    asked = [
        (each, subprocess.Popen([program, "dump", "--pid", str(each.pid)], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
        for each in ranks
    ]  # fmt: skip
    deadline = time.monotonic() + PY_SPY_SECONDS
    for each, process in asked:
        try:
            out, _ = process.communicate(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
        if process.returncode == 0:
            each.text = out.decode("utf-8", "replace")[-MAX_TEXT_BYTES:]


def _line_of(each: _Rank, call: str) -> str:
    """``call``: the one that has been in flight for long, if there is one."""
    state = _STATES.get(_state(each.pid), "")
    place = where(each.text)
    if state:
        return "; ".join(filter(None, (state, place, call and f"in flight: {call}")))
    if place:
        return place
    waits_in = _read(f"/proc/{each.pid}/wchan").strip("0")
    doing = f"sleeps in the kernel's {waits_in}" if waits_in else "computes" if _state(each.pid) == "R" else "sleeps"
    name = _read(f"/proc/{each.pid}/comm").strip()
    return f"no stack, since it has not called ciranda.init(); {name} {doing}"


class StackTaker:
    """The process that takes the stacks of a host's ranks, a child of the agent, which reaps it.

    Attributes:
        pid: its number.
        fd: a pipe of messages ``stacks``, one a rank; it ends when they have all come.
    """

    def __init__(self, ranks: Mapping[int, int], pages: Mapping[int, RankPage]) -> None:
        """Start it for these ranks, by their processes, with their pages; OSError if no process or pipe is left."""
        self.fd, writer = os.pipe()
        agent = os.getpid()
        try:
            self.pid = os.fork()
        except OSError:
            os.close(self.fd)
            os.close(writer)
            raise
        if self.pid == 0:
            try:
                _become_taker(ranks, pages, writer, agent)
            finally:
                os._exit(0)
        os.close(writer)
        os.set_blocking(self.fd, False)


def _become_taker(ranks: Mapping[int, int], pages: Mapping[int, RankPage], writer: int, agent: int) -> None:
    for number in (signal.SIGCHLD, *END_SIGNALS):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    die_with_parent(signal.SIGKILL, agent)
    with os.fdopen(writer, "wb") as file:
        for rank, line, text in take(ranks, pages):
            raw = text.encode("utf-8", "replace")[:MAX_TEXT_BYTES]
            file.write(protocol.encode({"t": "stacks", "rank": rank, "where": line, "raw": raw}))
