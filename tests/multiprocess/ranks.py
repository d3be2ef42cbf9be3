"""Real processes for tests: a world of ranks on this machine that runs functions.

    with Ranks(3) as ranks:
        assert ranks.run(lambda: hvd.rank()) == [0, 1, 2]

A world starts a rendezvous store and n processes, which call `ciranda.init()`. Functions travel by value, with what
they refer to in the test's module. A time limit counts from when all ranks have imported what the function needs, as
torch; then they begin together. Nothing outlives the world: whoever has not answered at the deadline is killed.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import cloudpickle
import forked
from link import Hosts, address
from rank_main import receive, send

from ciranda import _core

_MAIN = Path(__file__).with_name("rank_main.py")
_PREFIXES = ("CIRANDA_", "HOROVOD_")
_USUAL = {"OMP_NUM_THREADS": "1"}
_LOADING_SECONDS = 300.0  # of a framework, by several ranks at once, on a machine that is busy


@dataclass
class Outcome:
    """What became of a function on one rank."""

    value: Any = None
    error: BaseException | None = None
    traceback: str = ""


class RankError(AssertionError):
    """A function failed on a rank, or did not return in time."""


def _initialize() -> None:
    import ciranda

    ciranda.init()


def _environment(of_rank: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_PREFIXES)} | dict(of_rank)


class Ranks:
    """n processes that form a world."""

    def __init__(
        self,
        n_ranks: int,
        env: Mapping[str, str] | None = None,
        env_of: Callable[[int], Mapping[str, str]] = lambda rank: {},
        initialize: bool = True,
        hosts: Hosts | None = None,
        with_torch: bool = False,
    ) -> None:
        """Start them. With two hosts, the first half of the ranks is on the first.

        `with_torch` is for functions that use it: ranks are then forked, if they can be, from processes that have
        imported it. What is about the start or the end of a process, its signals or its costs, needs one of its own.
        """
        self.n_ranks = n_ranks
        self.is_broken = False
        self._folder = tempfile.TemporaryDirectory(prefix="ciranda-test-")
        folder = Path(self._folder.name)
        secret = secrets.token_hex(32)
        secret_file = folder / "secret"
        secret_file.touch(mode=0o600)
        secret_file.write_text(secret)
        job = secrets.token_hex(8)
        self._hosts = hosts
        store_address = address() if hosts else "127.0.0.1"

        def start_store() -> _core.StoreServer:
            return _core.StoreServer([store_address], 0, secret, n_ranks, job)

        self.store = hosts.on_first(start_store) if hosts else start_store()
        self.processes: list[subprocess.Popen[bytes] | forked.ForkedProcess] = []
        self._connections: list[socket.socket] = []
        self._loading: set[int] = set()  # those that have not said that they have loaded their function
        self._errors: list[Path] = []
        common = {
            "CIRANDA_STORE": f"{store_address}:{self.store.port}",
            "CIRANDA_SECRET_FILE": str(secret_file),
            "CIRANDA_JOB": job,
            "CIRANDA_HOST": "localhost",
            **_USUAL,
            **(env or {}),
        }
        all_env = [_environment({**common, **self._identity(rank), **env_of(rank)}) for rank in range(n_ranks)]
        usual = _environment(_USUAL)
        is_forked = with_torch and hosts is None and all(forked.prepare(env, usual, n_ranks) for env in all_env)
        for rank, env in enumerate(all_env):
            self._start(rank, env, is_forked)
        if initialize:
            self.run(_initialize)

    def _identity(self, rank: int) -> dict[str, str]:
        mine: dict[str, object] = {"RANK": rank, "LOCAL_RANK": rank, "CROSS_RANK": 0}
        if self._hosts:
            name = f"host{self._host_of(rank)}"
            mine = {**mine, "HOST": name, "HOST_ID": name, "INTERFACE": self._hosts.interfaces}
        all_alike = {"SIZE": self.n_ranks, "LOCAL_SIZE": self.n_ranks, "CROSS_SIZE": 1}
        return {f"CIRANDA_{name}": str(value) for name, value in {**mine, **all_alike}.items()}

    def _host_of(self, rank: int) -> int:
        return 2 * rank // self.n_ranks

    def _start(self, rank: int, env: Mapping[str, str], is_forked: bool) -> None:
        ours, theirs = socket.socketpair()
        errors = Path(self._folder.name) / f"stderr.{rank}"
        with theirs, errors.open("wb") as stderr:
            if is_forked:
                process = forked.fork(rank, env, theirs.fileno(), stderr.fileno())
            else:
                process = self._started(rank, env, theirs.fileno(), stderr)
        self.processes.append(process)
        self._connections.append(ours)
        self._errors.append(errors)

    def _started(
        self, rank: int, env: Mapping[str, str], connection: int, stderr: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        enter = self._hosts.enter(self._host_of(rank)) if self._hosts else []
        return subprocess.Popen(
            [*enter, sys.executable, str(_MAIN), str(connection)],
            env=env,
            pass_fds=[connection],
            stdin=subprocess.DEVNULL,
            stderr=stderr,
        )

    # --- running functions ---

    def start(self, rank: int, function: Callable[..., Any], *arguments: Any) -> None:
        """Send a function to one rank, which begins at once. Collect what comes out with outcome()."""
        self._send(rank, function, arguments, waits=False)

    def _send(self, rank: int, function: Callable[..., Any], arguments: tuple[Any, ...], waits: bool) -> None:
        module = sys.modules[function.__module__]
        cloudpickle.register_pickle_by_value(module)
        try:
            send(self._connections[rank], (function, arguments, waits))
        finally:
            cloudpickle.unregister_pickle_by_value(module)
        self._loading.add(rank)

    def _begin(self, ranks: Sequence[int], function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Send a function to ranks, which begin when all have loaded it."""
        for rank in ranks:
            self._send(rank, function, arguments, waits=True)
        for rank in ranks:
            self._await_loaded(rank)
        for rank in ranks:
            send(self._connections[rank], "begin")

    def _await_loaded(self, rank: int) -> None:
        if rank in self._loading:
            self._loading.remove(rank)
            self._answer(rank, _LOADING_SECONDS)

    def _answer(self, rank: int, timeout: float) -> Any:
        """Return the rank's next message; fail at the deadline, or if the process has died."""
        ready, _, _ = select.select([self._connections[rank]], [], [], max(timeout, 0))
        if not ready:
            raise self._too_late(rank)
        try:
            return receive(self._connections[rank])
        except (EOFError, ConnectionError):
            self.is_broken = True
            code = self.processes[rank].wait(timeout=60)
            raise RankError(f"rank {rank} ended with code {code}:\n{self.stderr(rank)}") from None

    def outcome(self, rank: int, timeout: float = 120.0) -> Outcome:
        """Return what became of the function on `rank`; fail at the deadline, or if the process has died."""
        self._await_loaded(rank)
        return Outcome(*self._answer(rank, timeout))

    def has_answered(self, rank: int, within: float) -> bool:
        """Whether there is an outcome to collect, in that many seconds."""
        self._await_loaded(rank)
        return bool(select.select([self._connections[rank]], [], [], within)[0])

    def outcomes(
        self, function: Callable[..., Any], *arguments: Any, on: Sequence[int] | None = None, timeout: float = 120.0
    ) -> list[Outcome]:
        """Run a function on all ranks, or on those of `on`; return what became of it on each."""
        ranks = range(self.n_ranks) if on is None else on
        self._begin(ranks, function, arguments)
        deadline = time.monotonic() + timeout
        found: list[Outcome] = []
        for rank in ranks:
            try:
                found.append(self.outcome(rank, deadline - time.monotonic()))
            except RankError as error:  # which may only have waited for a rank that failed
                raise RankError("\n".join([*_failures(ranks, found), str(error)])) from None
        return found

    def run(
        self, function: Callable[..., Any], *arguments: Any, on: Sequence[int] | None = None, timeout: float = 120.0
    ) -> list[Any]:
        """Run a function on all ranks, or on those of `on`; return its results. Fails where it fails."""
        outcomes = self.outcomes(function, *arguments, on=on, timeout=timeout)
        failures = _failures(range(self.n_ranks) if on is None else on, outcomes)
        if failures:
            self.is_broken = True
            raise RankError("\n".join(failures))
        return [outcome.value for outcome in outcomes]

    def errors(
        self, function: Callable[..., Any], *arguments: Any, on: Sequence[int] | None = None, timeout: float = 120.0
    ) -> list[BaseException]:
        """Run a function that must fail on all ranks, or on those of `on`; return its exceptions."""
        outcomes = self.outcomes(function, *arguments, on=on, timeout=timeout)
        for rank, outcome in enumerate(outcomes):
            assert outcome.error is not None, f"no error on rank {rank}, but {outcome.value!r}"
        return [outcome.error for outcome in outcomes if outcome.error is not None]

    def _too_late(self, rank: int) -> RankError:
        self.is_broken = True
        self.processes[rank].send_signal(signal.SIGUSR1)
        lengths = [0]

        def is_whole() -> bool:
            text = self._errors[rank].read_bytes()
            lengths.append(len(text))
            return b"Current thread" in text and lengths[-1] == lengths[-2]

        wait_until(is_whole, 5, must=False)
        return RankError(f"rank {rank} did not answer in time; it was here:\n{self.stderr(rank)}")

    # --- looking and meddling ---

    def stderr(self, rank: int) -> str:
        """Return what the rank has written to its standard error so far."""
        return self._errors[rank].read_text(errors="replace")

    def signal(self, rank: int, number: signal.Signals) -> None:
        self.processes[rank].send_signal(number)

    # --- the end ---

    def __enter__(self) -> Ranks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(expect_clean=kind is None and not self.is_broken)

    def end(self) -> None:
        """Tell the processes to end: their main threads do."""
        for connection in self._connections:
            connection.close()

    def close(self, expect_clean: bool = True, within: float = 120.0) -> None:
        """End the processes: they are told to, and killed at the deadline. Checks that those unharmed ended well."""
        self.end()
        deadline = time.monotonic() + (within if expect_clean else 0.0)
        late = []
        for rank, process in enumerate(self.processes):
            try:
                process.wait(timeout=max(deadline - time.monotonic(), 0.01))
            except subprocess.TimeoutExpired:
                late.append(rank)
                process.kill()
                process.wait()
        self.store.close()
        codes = [process.returncode for process in self.processes]
        texts = [self.stderr(rank) for rank in range(self.n_ranks)]
        self._folder.cleanup()
        if expect_clean:
            assert not late, f"ranks {late} did not end by themselves:\n" + "\n".join(texts)
            harmed = [rank for rank, code in enumerate(codes) if code not in (0, -signal.SIGKILL)]
            assert not harmed, f"exit codes {codes}:\n" + "\n".join(texts)


def cpu_seconds(pid: int) -> float:
    """What the process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def until_a_call_waits() -> None:
    """On a rank, in another thread than the one that calls: return once a call of it waits for other ranks."""
    from ciranda._basics import engine
    from ciranda.launch.page import read_bytes

    wait_until(lambda: read_bytes(engine().counter_page())["waiting"] > 0)


def _failures(ranks: Sequence[int], outcomes: Sequence[Outcome]) -> list[str]:
    """Return what the ranks failed with of which there is an outcome, the first ones."""
    return [
        f"on rank {rank}:\n{outcome.traceback}"
        for rank, outcome in zip(ranks, outcomes, strict=False)
        if outcome.error is not None
    ]


def wait_until(condition: Callable[[], bool], seconds: float = 60.0, must: bool = True) -> bool:
    """Look again and again until `condition` holds; fail (or return False) at the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            assert not must, f"not within {seconds} s: {condition}"
            return False
        time.sleep(0.002)
    return True
