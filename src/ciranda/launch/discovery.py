"""Host discovery: a program that prints the hosts there are, asked again and again while an elastic job runs."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from ciranda.launch.errors import HostsError
from ciranda.launch.failure import how_it_ended
from ciranda.launch.hosts import Host, parse_hosts

ANSWER_SECONDS = 30.0  # for one answer
PAUSE_SECONDS = 1.0  # from one question to the next
MAX_ANSWER_BYTES = 4 << 20


class Finder(Protocol):
    """Knows which hosts there are."""

    def find(self) -> Sequence[Host]:
        """Those that there are now; HostsError if there is no answer."""

    def stop(self) -> None:
        """End a find() that another thread has called: nobody waits for its answer any more."""


class HostScript:
    """Runs a command in a shell, which prints a line ``host`` or ``host:slots`` for each host; ``#`` starts a comment.

    Args:
        command: for the shell.
        default_slots: of a host that is printed without a number.
    """

    def __init__(self, command: str, default_slots: int | None = None) -> None:
        """HostsError if ``default_slots`` is no number of slots."""
        if default_slots is not None and default_slots < 1:
            raise HostsError(f"--slots-per-host {default_slots}: must be 1 or more")
        self._command = command
        self._default_slots = default_slots
        self._pid: int | None = None  # of the session that runs

    def stop(self) -> None:
        """As of any finder."""
        if self._pid is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)

    def find(self) -> list[Host]:
        """Run it once. Of a host that is printed twice, the last line counts; one with 0 slots is not there.

        Raises:
            HostsError: it failed, did not end within ANSWER_SECONDS, or printed what is no host; or a host without
                slots, and there is no number of slots for such hosts.
        """
        exit_code, output, complaints = self._run()
        if exit_code != 0:
            said = complaints.decode("utf-8", "replace").strip() or "it wrote nothing to stderr"
            raise self._error(f"{'failed with' if exit_code > 0 else 'was'} {how_it_ended(exit_code)}: {said}")
        found: dict[str, Host] = {}
        lines = (raw.partition("#")[0].strip() for raw in output.decode("utf-8", "replace").splitlines())
        for line in filter(None, lines):
            without_slots = re.fullmatch("(.+):0+", line)
            (host,) = self._parsed(without_slots[1] if without_slots else line)
            if without_slots:
                found.pop(host.name, None)
                continue
            has_slots = ":" in line.rpartition("]")[2]
            if not has_slots and self._default_slots is None:
                raise self._error(f"printed {line!r}: print host:slots, or give --slots")
            found[host.name] = host if has_slots else Host(host.name, int(self._default_slots or 0))
        return list(found.values())

    def _parsed(self, line: str) -> list[Host]:
        try:
            hosts = parse_hosts(line)
        except HostsError as error:
            raise self._error(f"printed {line[:80]!r}: {error}") from None
        if len(hosts) != 1:
            raise self._error(f"printed {line[:80]!r}: print one host a line")
        return hosts

    def _error(self, text: str) -> HostsError:
        return HostsError(f"the discovery script {self._command!r} {text}")

    def _run(self) -> tuple[int, bytes, bytes]:
        """Return the exit code, and what it wrote to stdout and stderr; it is killed with all that it has started."""
        process = subprocess.Popen(
            self._command,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._pid = process.pid
        try:
            deadline = time.monotonic() + ANSWER_SECONDS
            output, complaints = self._read(process, deadline)
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise self._late() from None
        finally:
            self.stop()
            self._pid = None
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        return process.returncode, output, complaints

    def _late(self) -> HostsError:
        return self._error(f"has not ended within {ANSWER_SECONDS:g} s")

    def _read(self, process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bytes]:
        assert process.stdout is not None
        assert process.stderr is not None
        read = {process.stdout: bytearray(), process.stderr: bytearray()}
        with selectors.PollSelector() as selector:
            for pipe in read:
                selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready and time.monotonic() >= deadline:
                    raise self._late()
                for key, _ in ready:
                    data = os.read(key.fd, 1 << 16)
                    read[key.fileobj] += data  # type: ignore[index]
                    if not data:
                        selector.unregister(key.fileobj)
                if sum(map(len, read.values())) > MAX_ANSWER_BYTES:
                    raise self._error(f"has written more than {MAX_ANSWER_BYTES} bytes")
        return bytes(read[process.stdout]), bytes(read[process.stderr])


def wait_for(finder: Finder, n_wanted: int, n_least: int, seconds: float, say: Callable[[str], None]) -> list[Host]:
    """Ask until the hosts have ``n_wanted`` slots; after ``seconds``, ``n_least`` do.

    Raises:
        HostsError: the first answer is none, or there are too few slots.
    """
    deadline = time.monotonic() + seconds
    hosts = list(finder.find())
    has_said = False
    while sum(host.slots for host in hosts) < n_wanted and time.monotonic() < deadline:
        if not has_said:
            say(f"waiting for hosts: {_slots_of(hosts)} there, {n_wanted} are needed")
            has_said = True
        time.sleep(min(PAUSE_SECONDS, max(0.0, deadline - time.monotonic())))
        with suppress(HostsError):  # the answer before counts
            hosts = list(finder.find())
    if sum(host.slots for host in hosts) < n_least:
        raise HostsError(
            f"within {seconds:g} s the discovery script found {_slots_of(hosts)}, but {n_least} are needed"
        )
    return hosts


def _slots_of(hosts: Sequence[Host]) -> str:
    n_slots = sum(host.slots for host in hosts)
    return f"{n_slots} slot{'s' * (n_slots != 1)}"


class Discovery:
    """Asks again and again, on a thread of its own.

    Args:
        finder: what is asked.
        hosts: the last answer.

    Attributes:
        fd: readable when there is something to take.
    """

    def __init__(self, finder: Finder, hosts: Sequence[Host]) -> None:
        self._finder = finder
        self._last = list(hosts)
        self._lock = threading.Lock()
        self._news: list[Host] | None = None  # guarded by _lock
        self._warning = ""  # guarded by _lock
        self._has_failed = False
        self._is_closed = threading.Event()
        self.fd, self._write_fd = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write_fd, False)
        threading.Thread(target=self._ask, name="ciranda-discovery", daemon=True).start()

    def take(self) -> tuple[list[Host] | None, str]:
        """Return the newest answer if it differs from the last one taken, and a warning if there is one."""
        with suppress(BlockingIOError):
            os.read(self.fd, 4096)
        with self._lock:
            news, warning = self._news, self._warning
            self._news, self._warning = None, ""
        return news, warning

    def close(self) -> None:
        """Ask no more."""
        self._is_closed.set()
        self._finder.stop()
        with self._lock:
            os.close(self.fd)
            os.close(self._write_fd)

    def _ask(self) -> None:
        while not self._is_closed.wait(PAUSE_SECONDS):
            try:
                hosts = list(self._finder.find())
            except HostsError as error:
                is_first, self._has_failed = not self._has_failed, True
                if is_first:
                    self._tell(None, f"{error}; the hosts of its last answer are kept")
                continue
            self._has_failed = False
            if set(hosts) != set(self._last):  # a new order alone is no news
                self._last = hosts
                self._tell(hosts, "")

    def _tell(self, news: list[Host] | None, warning: str) -> None:
        with self._lock:
            if self._is_closed.is_set():
                return
            self._news = self._news if news is None else news
            self._warning = warning or self._warning
            with suppress(BlockingIOError):
                os.write(self._write_fd, b"\0")
