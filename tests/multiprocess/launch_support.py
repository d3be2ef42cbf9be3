"""What the launcher's tests share: starting `ciranda run` as a user does, and seeing what is left of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

TAG = "CIRANDA_TEST_TAG"
GUARD_SECONDS = 120.0  # against hanging; what is waited for comes much sooner, however busy the machine is
PROMPT_SECONDS = 10.0  # for what a user is promised within two, on a machine that is not busy

# The launcher with a store that nobody connects to: these tests are about processes, not about the engine.
_MAIN = """
import sys
sys.path[:] = [path for path in sys.path if path]
import types, importlib.util
spec = importlib.util.find_spec("ciranda")
package = types.ModuleType("ciranda"); package.__path__ = list(spec.submodule_search_locations)
sys.modules["ciranda"] = package
from ciranda.launch import cli
class Store:
    port = 4242
    def __init__(self, bind, port, secret, size, job):
        assert bind and len(bytes.fromhex(secret)) == 32 and size > 0 and job
    def lose(self, rank, why): pass
    def close(self): pass
cli.main(store_factory=Store)
"""


def launcher_command(*arguments: str) -> list[str]:
    """`ciranda ...`, with a store that does nothing."""
    return [sys.executable, "-c", _MAIN, *arguments]


def python_rank(code: str) -> list[str]:
    """A rank that runs ``code``; starts faster than the user's Python would."""
    return [sys.executable, "-S", "-c", code]


def until(condition: Callable[[], bool], seconds: float = GUARD_SECONDS, what: str = "the condition") -> None:
    """Poll until ``condition`` holds. Fails the test after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not hold within {seconds} s")
        time.sleep(0.005)


@dataclass
class Running:
    """A launcher under way, and every process that it or its ranks started, known by a mark in their environment."""

    process: subprocess.Popen[bytes]
    tag: str

    def processes(self) -> list[int]:
        """Those that live now, the launcher included."""
        mark = f"{TAG}={self.tag}".encode()
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    with open(f"/proc/{name}/environ", "rb") as file:
                        if mark in file.read().split(b"\0"):
                            found.append(int(name))
                except OSError:
                    pass
        return found

    def wait(self, seconds: float = GUARD_SECONDS) -> tuple[int, bytes, bytes]:
        """Exit code, stdout, stderr; the latter is also kept for the report of a test that fails."""
        out, err = self.process.communicate(timeout=seconds)
        sys.stderr.write((err or b"").decode(errors="replace"))
        return self.process.returncode, out, err

    def read_line(self) -> bytes:
        """The next line of its stdout; blocks."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def read_lines(self, count: int) -> list[bytes]:
        """The next lines, sorted, since ranks come in any order."""
        return sorted(self.read_line() for _ in range(count))

    def assert_nothing_left(self, seconds: float = PROMPT_SECONDS) -> None:
        """Fails if a process of this job still lives after ``seconds``, and ends it."""
        try:
            until(lambda: not self.processes(), seconds, "the end of every process")
        except AssertionError:
            left = {pid: command_of(pid) for pid in self.processes()}
            for pid in left:
                _end(pid)
            raise AssertionError(f"processes are left: {left}") from None

    def close(self) -> None:
        """End what is left, close the pipes."""
        for pid in self.processes():
            _end(pid)
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe:
                pipe.close()

    def children_of_launcher(self) -> list[int]:
        """The agents (or ssh clients)."""
        return children(self.process.pid)


def _end(pid: int) -> None:
    """SIGKILL, unless it has ended by itself meanwhile."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def children(pid: int) -> list[int]:
    """The living children of a process."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] != b"Z":
                found.append(int(name))
    return found


def command_of(pid: int) -> str:
    """Its command line, for messages."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace")[:200]
    except OSError:
        return "gone"


def start(
    arguments: Sequence[str | bytes],
    *,
    env: dict[str, str] | dict[bytes, bytes] | None = None,
    through: Sequence[str] = (),
    cwd: str | None = None,
    **popen: object,
) -> Running:
    """Start `ciranda ARGUMENTS`; ``through`` is put in front of the command (nsenter ...)."""
    tag = uuid.uuid4().hex
    environment: dict[bytes, bytes] = {**os.environb, TAG.encode(): tag.encode()}
    for name, value in (env or {}).items():
        environment[os.fsencode(name)] = os.fsencode(value)
    options: dict[str, object] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    options.update(popen)
    command = [*through, *launcher_command(), *arguments]
    process = subprocess.Popen(command, env=environment, cwd=cwd, **options)  # type: ignore[call-overload]
    running = Running(process, tag)
    _started.append(running)
    return running


_started: list[Running] = []


def close_all() -> None:
    """After a test: close what it started."""
    while _started:
        _started.pop().close()


def run(arguments: Sequence[str | bytes], **options: object) -> tuple[int, bytes, bytes]:
    """Run `ciranda ARGUMENTS` to its end and check that nothing is left."""
    running = start(arguments, **options)  # type: ignore[arg-type]
    result = running.wait()
    running.assert_nothing_left()
    return result
