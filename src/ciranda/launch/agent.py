"""The agent: one a host. Starts the host's ranks, streams their output, detects their exit at once.

It reads the job from its stdin (protocol.py). It ends every rank on request, when its stdin ends (the launcher, or the
ssh connection, has died), when the launcher's host is cut off, or on SIGTERM and its like: SIGTERM to the ranks, also
to what they leave behind, SIGKILL to all after the grace period. In an elastic job it also starts ranks again, and
passes on words between them and the launcher; a rank has ended when what it has left behind has. It is a subreaper, so
descendants of ranks cannot escape by daemonising. It is two processes: the *worker* does all of this; the *guardian*,
its parent, only waits, and if the worker is killed ends the remaining processes. If the guardian is killed, the worker
ends the ranks. Both are single-threaded. Standard library only: an agent must start at once.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import selectors
import signal
import socket
import sys
import syslog
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from ciranda.launch import cores, environment, protocol, reserved_port, silence
from ciranda.launch.errors import LaunchError, ProtocolError
from ciranda.launch.exporter import Exporter, listen, make_folder
from ciranda.launch.live_records import LiveRecords
from ciranda.launch.memory_kills import MemoryKills
from ciranda.launch.outbox import Outbox, received, widen
from ciranda.launch.page import RankPage
from ciranda.launch.process_signs import Signs
from ciranda.launch.processes import (
    BY_SSH,
    END_SIGNALS,
    NO_PROCESS,
    PASSED_ON,
    Tree,
    are_processes_shown,
    become_subreaper,
    descendants,
    die_with_parent,
    is_group_alive,
    kill_descendants,
    open_standard_streams,
    send_signal,
    session_id,
    signal_descendants,
    why_not_started,
)
from ciranda.launch.protocol import Message
from ciranda.launch.rank_line import RankLine
from ciranda.launch.rank_process import NOT_EXECUTABLE, RankProcess
from ciranda.launch.record_file import RecordFile
from ciranda.launch.shared_file import SharedFile
from ciranda.launch.stacks import StackTaker
from ciranda.launch.stopped import StoppedRanks
from ciranda.launch.stopped import limit_of as limit_of_stops
from ciranda.launch.torch_store import TorchStore

MAX_QUEUED_BYTES = 1 << 20  # above this, ranks' output is left in their pipes until the launcher has read some
LAST_WORDS_SECONDS = 0.2  # how long to go on writing to a launcher that may be gone
SWEEP_SECONDS = 0.02  # between SIGKILL rounds
OWN_FILES = 24  # the agent's own open files, with those that are open while a rank starts or /proc is read
MPI_LIBRARY = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib", "libciranda_mpi.so")


class Agent:
    """The worker's event loop. Phases: waiting for the job, running, ending, done."""

    def __init__(self, inbox: int, outbox: int, look: silence.Look | None = None) -> None:
        """``look``: at the connection to the launcher's host, if it is known already."""
        self._look = look
        self._silence: silence.Silence | None = None  # from the start of the ranks
        self._selector = selectors.DefaultSelector()
        self._inbox = inbox
        self._reader = protocol.MessageReader()
        self._outbox = Outbox(outbox)
        self._reserved: list[reserved_port.ReservedPort] = []
        self._store: TorchStore | None = None
        self._taker: StackTaker | None = None
        self._exporter: Exporter | None = None
        self._listener: socket.socket | None = None  # the exporter's
        self._spec: protocol.Spec | None = None
        self._blobs: dict[str, SharedFile] = {}
        self._secret: SharedFile | None = None
        self._ranks: dict[int, RankProcess] = {}  # by pid, those not yet reaped
        self._common: dict[bytes, bytes] = {}  # the variables that all ranks have
        self._cpus: dict[int, set[int]] = {}  # rank -> where it may run
        self._ended: list[tuple[RankProcess, int]] = []  # with their codes, and descendants that are still to be killed
        self._pages: dict[int, RankPage] = {}  # by rank, also of those that have ended; an elastic job's by place
        self._records: dict[int, RecordFile] = {}  # likewise
        self._live: LiveRecords | None = None
        self._unsent: Iterator[Message] | None = None  # of the records, once the ranks have ended
        self._signs = Signs()
        self._spent: dict[int, dict[str, float]] = {}  # by rank, what those that have ended have used
        self._is_collected = False
        self._pipes: dict[int, tuple[int, str]] = {}  # fd -> rank, stream
        self._paused = False
        self._started = False
        self._done = False
        self._end_reason: str | None = None
        self._kill_at = 0.0
        self._memory_kills = MemoryKills()
        self._stopped: StoppedRanks | None = None  # of an elastic job
        self._killed_as_stopped: set[int] = set()  # pids
        self._well_ended: list[tuple[int, int]] = []  # ranks with their pids, of which something may still join
        self._asked: set[int] = set()  # the processes that have had SIGTERM
        self._give_up_at: float | None = None
        self._signalled = 0
        self._wake_read, self._wake_write = os.pipe()

    def run(self) -> None:
        """Serve until every descendant has ended and the launcher has been informed, or has ended itself."""
        self._watch_signals()
        os.set_blocking(self._inbox, False)
        widen(self._inbox)
        widen(self._outbox.fd)
        self._selector.register(self._inbox, selectors.EVENT_READ, self._on_inbox)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._on_wake)
        self._outbox.send(_hello())
        self._outbox.flush()
        self._regulate()
        while not self._finished():
            for key, _ in self._selector.select(self._timeout()):
                handler: Callable[[], None] = key.data
                handler()
            if self._signalled:
                self._give_up_soon()
                self._end(f"signal {signal.Signals(self._signalled).name}")
            self._look_for_silence()
            self._look_for_stopped()
            self._attend_to_live()
            children_left = self._reap()
            self._clear_up()
            self._tell_of_absent()
            self._advance(children_left)
            self._outbox.flush()
            self._regulate()

    # -- events ------------------------------------------------------------------------------------------------------

    def _watch_signals(self) -> None:
        for fd in (self._wake_read, self._wake_write):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in END_SIGNALS:
            signal.signal(number, self._on_end_signal)

    def _on_end_signal(self, number: int, _frame: object) -> None:
        self._signalled = number  # the loop, woken by the same signal, does the rest

    def _on_wake(self) -> None:
        try:
            while os.read(self._wake_read, 4096):
                pass
        except BlockingIOError:
            pass

    def _on_inbox(self) -> None:
        data = received(self._inbox)
        if data is None:
            return
        if not data:
            self._selector.unregister(self._inbox)
            self._give_up_soon()
            self._end("the launcher is gone")
            return
        try:
            for message in self._reader.feed(data):
                self._on_message(message)
        except ProtocolError as error:
            self._fail("protocol error", str(error))

    def _look_for_silence(self) -> None:
        """See whether the launcher's host is cut off: ssh's server and Slurm's here would not notice for long."""
        if self._silence is None or time.monotonic() < self._silence.deadline:
            return
        if self._silence.is_too_long():
            self._on_silence(self._silence.limit_seconds)
        elif not self._outbox:
            self._outbox.send(silence.BEAT)

    def _on_silence(self, limit_seconds: float) -> None:
        text = f"the host of the launcher {silence.cut_off(limit_seconds)}: all ranks here are ended"
        syslog.openlog("ciranda", syslog.LOG_PID, syslog.LOG_USER)
        syslog.syslog(syslog.LOG_ERR, text)  # nobody reads this agent's own output any more
        self._silence = None
        self._outbox.broken = True
        self._outbox.discard()
        self._give_up_soon()
        self._end("the launcher is cut off")

    def _look_for_stopped(self) -> None:
        """Kill ranks that stay stopped: the others of an elastic job would wait for them much longer."""
        if self._stopped is None or self._end_reason is not None or time.monotonic() < self._stopped.deadline:
            return
        processes = {process.rank: process for process in self._ranks.values()}
        pids = {rank: self._main_pid(process) for rank, process in processes.items()}
        for rank in self._stopped.look(pids, {rank: self._pages[rank].size() for rank in processes}):
            self._killed_as_stopped.add(processes[rank].pid)
            send_signal(processes[rank].pid, signal.SIGKILL)

    def _main_pid(self, process: RankProcess) -> int:
        """The process that trains: below a shell, the one that has joined a world, if this host knows its number."""
        pid, _ = self._pages[process.rank].world()
        return pid if session_id(pid) == process.pid else process.pid

    def _on_message(self, message: Message) -> None:
        if message["t"] == "end":
            self._end("order", protocol.seconds_of(message, "grace"))
        elif message["t"] == "signal":
            self._pass_on(protocol.int_of(message, "number", 1, signal.NSIG - 1))
        elif message["t"] == "stacks":
            self._take_stacks()
        elif message["t"] in ("word", "kill", "restart") and self._started:
            self._on_order_for(protocol.int_of(message, "rank", 0, 1 << 24), message)
        elif message["t"] == "counters":
            self._send_counters("counters", RankPage.counters)
        elif message["t"] == "totals":
            self._send_counters("totals", RankPage.totals)
        elif message["t"] == "clock":
            self._outbox.send({**message, "now": time.monotonic_ns()})
        elif message["t"] == "collected":
            self._is_collected = True
        elif message["t"] in ("record", "record_end"):
            self._record_live(message["t"] == "record")
        elif message["t"] == "beat":
            pass
        elif message["t"] == "reserve" and not self._reserved:
            self._reserve(message)
        elif self._spec is None:
            self._spec = protocol.Spec(message)
            self._blobs = {name: SharedFile(f"ciranda-{name}") for name in self._spec.blobs}
        elif message["t"] == "blob":
            blob = self._blobs.get(protocol.text_of(message, "name"))
            if blob is None:
                raise ProtocolError("a blob that the spec does not name")
            blob.append(protocol.raw_of(message))
        elif message["t"] == "start" and not self._started and self._end_reason is None:
            self._start(self._spec)
        else:
            raise ProtocolError(f"unexpected message {message['t']!r}")

    def _on_order_for(self, rank: int, message: Message) -> None:
        process = next((process for process in self._ranks.values() if process.rank == rank), None)
        if message["t"] == "restart":
            if process is None and self._end_reason is None:
                self._restart(rank, protocol.environment_of(message, "env"))
        elif process is None:
            pass  # it has ended meanwhile, as the launcher is about to hear
        elif message["t"] == "kill":
            send_signal(process.pid, signal.SIGKILL)
        elif process.line is not None:
            process.line.send(protocol.word_of(message))

    def _reserve(self, message: Message) -> None:
        try:
            self._reserved, of_store, answer = reserved_port.answer(message)
        except (OSError, LaunchError) as error:
            self._fail("no port", f"no port can be kept for MASTER_PORT or JAX: {error}")
            return
        if of_store is not None:
            fd, port = of_store.listen(), of_store.port
            self._reserved.append(of_store)
            self._selector.register(fd, selectors.EVENT_READ, lambda: self._start_store(fd, port))
        self._outbox.send(answer)

    def _start_store(self, fd: int, port: int) -> None:
        """A rank has connected: start torch's store, which accepts it, and all others."""
        self._selector.unregister(fd)
        try:
            self._store = TorchStore(fd, port)
        except OSError as error:
            self._fail("no store", f"cannot start a process for torch's store: {error.strerror}")

    def _on_store_end(self, status: int) -> None:
        self._store = None
        if self._ranks and self._end_reason is None:
            code = os.waitstatus_to_exitcode(status)
            self._fail("no store", f"the process that hosts torch's store has ended with code {code}")

    # -- ranks -------------------------------------------------------------------------------------------------------

    def _start(self, spec: protocol.Spec) -> None:
        self._started = True
        if obstacle := self._obstacle(spec):
            self._fail(*obstacle)
            return
        self._enter(spec.cwd)
        try:
            self._listener = listen(spec.metrics) if spec.metrics else None
            if spec.metrics_dir:
                make_folder(spec.metrics_dir)
        except (OSError, LaunchError) as error:
            self._fail("no metrics", f"metrics: {error}")
            return
        self._secret = SharedFile("ciranda-secret")
        self._secret.append(spec.secret.encode("ascii"))
        common = environment.forwarded(os.environb, remote=False) if spec.inherit else {}
        common.update(spec.env)
        common[b"CIRANDA_SECRET_FILE"] = self._secret.path.encode()
        for name, blob in self._blobs.items():
            common[name.encode()] = blob.path.encode()
        if spec.jax_native:
            common[b"MPITRAMPOLINE_LIB"] = os.fsencode(MPI_LIBRARY)
        for shared in (self._secret, *self._blobs.values()):
            shared.seal()
        self._share_cores(common, len(spec.rank_env))
        self._common = common
        stopped_seconds = limit_of_stops(common) if spec.is_elastic else 0.0
        self._stopped = StoppedRanks(stopped_seconds) if stopped_seconds > 0 else None
        look = self._look or silence.of_connections(spec.connections)
        if look is not None:
            # Twice what the launcher waits, so that it is the one to give up if both are there.
            told = {silence.NAME: os.fsdecode(common.get(silence.NAME.encode(), b""))}
            self._silence = silence.Silence(look, 2 * silence.limit_of({k: v for k, v in told.items() if v}))
        self._cpus = {rank: cpus for (rank, _), cpus in zip(spec.rank_env, self._cpus_of_ranks(spec), strict=True)}
        for rank, own in spec.rank_env:
            try:
                self._start_rank(spec, rank, own)
            except OSError as error:
                self._fail("no process", f"cannot start rank {rank}: {why_not_started(error)}")
                return
        self._export(spec)

    def _start_rank(self, spec: protocol.Spec, rank: int, own: dict[bytes, bytes]) -> None:
        """Start a process; OSError if there is no file or process left."""
        if rank not in self._pages:
            self._pages[rank] = RankPage(rank)
        told = {**self._common, **own, b"CIRANDA_PAGE_FILE": self._pages[rank].path.encode()}
        line = RankLine() if spec.is_elastic else None
        if spec.records:
            if rank not in self._records:
                self._records[rank] = RecordFile()
            self._records[rank].drop_incomplete()
            told[b"CIRANDA_RECORDS_FILE"] = self._records[rank].path.encode()
        try:
            process = RankProcess(rank, spec.argv, told, spec.want_results, self._cpus.get(rank, ()), line)
        except OSError:
            if line is not None:
                line.close()
            raise
        self._ranks[process.pid] = process
        if spec.want_results:
            widen(process.pipes["result"])
        for stream, fd in process.pipes.items():
            self._pipes[fd] = (rank, stream)
            if not self._paused:
                self._selector.register(fd, selectors.EVENT_READ, lambda fd=fd: self._on_output(fd))
        if line is not None:
            self._selector.register(line.fd, selectors.EVENT_READ, lambda: self._on_line(process, line))
        self._outbox.send({"t": "started", "rank": rank, "pid": process.pid})

    def _restart(self, rank: int, own: dict[bytes, bytes]) -> None:
        assert self._spec is not None
        is_new = rank not in self._pages
        try:
            self._start_rank(self._spec, rank, own)
            if is_new:
                self._export(self._spec)
        except OSError as error:
            text = f"cannot start rank {rank} again: {why_not_started(error)}"
            self._outbox.send({"t": "note", "text": text, "warning": True})
            self._outbox.send({"t": "exit", "rank": rank, "code": NOT_EXECUTABLE, "ended": False})

    def _on_line(self, process: RankProcess, line: RankLine) -> None:
        """The rank has said something, has closed its end, or reads what it is told."""
        line.flush()
        for word in line.read():
            self._outbox.send({"t": "word", "rank": process.rank, "word": word})
        if line.is_over:
            # In this order: a child that has inherited the descriptor would keep it registered under its number.
            self._selector.unregister(line.fd)
            line.close()

    def _export(self, spec: protocol.Spec) -> None:
        """Start what shows the ranks to Prometheus, if it is asked for; another if there are more pages to inherit."""
        if self._listener is None and not spec.metrics_dir:
            return
        if self._exporter is not None:
            self._exporter.give_way()
        pids = None if spec.is_elastic else {process.rank: process.pid for process in self._ranks.values()}
        labels = {"job": spec.job, "host": spec.host}
        try:
            self._exporter = Exporter(self._pages, pids, labels, self._listener, spec.metrics_dir)
        except OSError as error:
            self._fail("no metrics", f"cannot start a process for metrics: {why_not_started(error)}")
        if self._listener is not None and not spec.is_elastic:
            self._listener.close()
            self._listener = None

    def _obstacle(self, spec: protocol.Spec) -> tuple[str, str] | None:
        """What keeps the ranks from being started, or from being ended later: in short, and in words."""
        if not are_processes_shown():
            text = "/proc does not show this host's processes, without which none could be ended: mount it (proc)"
            return "no /proc", text
        n_ranks = len(spec.rank_env)
        n_needed = OWN_FILES + len(self._blobs) + n_ranks * (3 + spec.want_results + spec.is_elastic + spec.records)
        n_allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if n_allowed != resource.RLIM_INFINITY and n_allowed < n_needed:
            text = f"{n_ranks} ranks need {n_needed} open files, {n_allowed} are allowed: ulimit -n {n_needed}, or more"
            return "too few files", text
        if spec.jax_native and not os.path.exists(MPI_LIBRARY):
            return "no library for JAX", f"--jax-native: ciranda has no {MPI_LIBRARY} here"
        return None

    def _enter(self, cwd: bytes) -> None:
        try:
            os.chdir(cwd)
        except OSError as error:
            home = os.path.expanduser(b"~")
            os.chdir(home if os.path.isdir(home) else b"/")
            where = protocol.to_text(os.getcwdb())
            text = f"cannot enter {protocol.to_text(cwd)!r} ({error.strerror}): the ranks run in {where!r}"
            self._outbox.send({"t": "note", "text": text, "warning": True})

    def _share_cores(self, env: dict[bytes, bytes], local_size: int) -> None:
        """Unless the user says otherwise, each rank's OpenMP gets its share of the cores, not all of them."""
        if local_size > 1 and b"OMP_NUM_THREADS" not in env:
            n_cores = len(os.sched_getaffinity(0))
            n_threads = max(1, n_cores // local_size)
            env[b"OMP_NUM_THREADS"] = b"%d" % n_threads
            text = (
                f"OMP_NUM_THREADS={n_threads} for each rank ({n_cores} cores, {local_size} ranks); set it to override"
            )
            self._outbox.send({"t": "note", "text": text, "warning": False})

    def _cpus_of_ranks(self, spec: protocol.Spec) -> list[set[int]]:
        """Where each rank may run; empty for anywhere."""
        n_ranks = len(spec.rank_env)
        if spec.bind_to == "none" or n_ranks == 1:
            return [set() for _ in spec.rank_env]
        cpus = cores.usable_cpus()
        if spec.bind_to == "numa":
            shares, why_not = cores.spread(cores.nodes_of(cpus), n_ranks), "there is one NUMA node"
        else:
            shares, why_not = cores.shares(cores.cores_of(cpus), n_ranks), "too few"
        bound = "; ".join(f"{rank} to {sorted(cpus)}" for (rank, _), cpus in zip(spec.rank_env, shares, strict=True))
        text = f"ranks are bound to cores: {bound}" if all(shares) else f"ranks are not bound to cores: {why_not}"
        self._outbox.send({"t": "note", "text": text, "warning": False})
        return shares

    def _on_output(self, fd: int) -> int:
        """Pass on one piece; close the pipe at its end. How many bytes there were."""
        data = received(fd)
        if data is None:
            return 0
        rank, stream = self._pipes[fd]
        if not data:
            self._close_pipe(fd)
        elif stream == "result":
            self._outbox.send({"t": "result", "rank": rank, "raw": data})
        else:
            self._outbox.send({"t": "data", "rank": rank, "stream": stream, "data": protocol.pack(data)})
        return len(data)

    def _close_pipe(self, fd: int) -> None:
        if not self._paused:
            self._selector.unregister(fd)
        del self._pipes[fd]
        os.close(fd)

    def _drain(self, fds: list[int]) -> None:
        """Pass on all that was written to these pipes until now."""
        for fd in fds:
            # No more than a pipe holds: what writes on and on must not keep the rest waiting.
            n_left = fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
            while n_left > 0 and fd in self._pipes and (n_bytes := self._on_output(fd)) > 0:
                n_left -= n_bytes

    def _pass_on(self, number: int) -> None:
        """Send a signal to what takes it of each rank, as behind a wrapper; to the rank itself if nothing does."""
        tree = Tree()
        for rank in self._ranks:
            for pid in list(tree.takers(rank, number)) or [rank]:
                send_signal(pid, number)

    def _take_stacks(self) -> None:
        """Have another process find where the ranks stand; one at a time, which answers all who ask meanwhile."""
        if self._taker is not None:
            return
        try:
            self._taker = StackTaker({each.rank: each.pid for each in self._ranks.values()}, self._pages)
        except OSError as error:
            self._outbox.send({"t": "note", "text": f"no stacks: {why_not_started(error)}", "warning": True})
            self._outbox.send({"t": "stacks_end"})
            return
        taker, reader = self._taker, protocol.MessageReader()
        self._selector.register(taker.fd, selectors.EVENT_READ, lambda: self._on_stacks(taker, reader))

    def _on_stacks(self, taker: StackTaker, reader: protocol.MessageReader) -> None:
        try:
            data = os.read(taker.fd, protocol.CHUNK_BYTES)
        except BlockingIOError:
            return
        for message in reader.feed(data):
            self._outbox.send(message)
        if not data:
            self._selector.unregister(taker.fd)
            os.close(taker.fd)
            self._taker = None
            self._outbox.send({"t": "stacks_end"})

    def _send_counters(self, kind: str, look: Callable[[RankPage], dict[str, Any]]) -> None:
        pids = {process.rank: process.pid for process in self._ranks.values()}
        for rank, page in self._pages.items():
            counters = look(page)
            pid = counters.get("pid", pids[rank]) if rank in pids else 0
            signs = self._signs.of(pid, is_waiting=counters.get("waiting", 0) > 0)
            told = {**counters, **signs, **self._spent.get(rank, {}), "runs": rank in pids}
            self._outbox.send({"t": kind, "rank": rank, "counters": told})
        self._outbox.send({"t": f"{kind}_end"})

    def _record_live(self, is_begin: bool) -> None:
        """Have the ranks record from now on; or end that, and send what they have recorded."""
        if is_begin and self._live is None:
            try:
                self._live = LiveRecords(self._pages)
            except OSError as error:
                text = f"calls cannot be recorded: {why_not_started(error)}"
                self._outbox.send({"t": "note", "text": text, "warning": True})
        elif not is_begin and self._live is not None:
            self._live.end(self._send_live)
        elif not is_begin:
            self._outbox.send({"t": "records_end"})

    def _send_live(self, messages: Iterator[Message]) -> None:
        for message in messages:
            self._outbox.send(message)

    def _attend_to_live(self) -> None:
        if self._live is not None and self._taker is not None:
            self._live.postpone()
        elif self._live is not None and not self._live.on_time():
            self._live.close()
            self._live = None

    def _reap(self) -> bool:
        """Reap ended children, and report ranks to the launcher. Whether any child is left."""
        is_any_gone = False
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                if is_any_gone and self._end_reason is not None:
                    self._ask()
                return True
            is_any_gone = True
            self._asked.discard(pid)
            if self._store is not None and pid == self._store.pid:
                self._on_store_end(status)
            if self._exporter is not None and pid == self._exporter.pid:
                self._exporter.clean_up()
                self._exporter = None
            process = self._ranks.pop(pid, None)
            if process is not None:
                self._drain([fd for fd in process.pipes.values() if fd in self._pipes])
                code = os.waitstatus_to_exitcode(status)
                self._spent[process.rank] = {
                    "cpu_seconds": usage.ru_utime + usage.ru_stime,
                    "peak_memory_bytes": usage.ru_maxrss << 10,
                }
                if process.line is not None:
                    self._close_line(process, process.line)
                if self._spec is not None and self._spec.is_elastic and self._end_reason is None:
                    self._ended.append((process, code))
                else:
                    self._report_exit(process, code)

    def _close_line(self, process: RankProcess, line: RankLine) -> None:
        """Pass on the last words of a rank that has ended."""
        if line.fd >= 0:
            self._on_line(process, line)
        if line.fd >= 0:
            self._selector.unregister(line.fd)
            line.close()

    def _report_exit(self, process: RankProcess, code: int) -> None:
        ended = self._end_reason is not None
        message: Message = {"t": "exit", "rank": process.rank, "code": code, "ended": ended}
        if process.pid in self._killed_as_stopped:
            self._killed_as_stopped.discard(process.pid)
            assert self._stopped is not None
            message["stopped"] = self._stopped.limit_seconds
        elif code == -signal.SIGKILL and self._memory_kills.took_one():
            message["memory"] = True
        self._outbox.send(message)
        if code == 0 and process.line is None:
            self._well_ended.append((process.rank, process.pid))

    def _tell_of_absent(self) -> None:
        """Tell the launcher which ranks have ended with 0, and have left no process that may join."""
        if self._end_reason is not None:
            self._well_ended.clear()
        still: list[tuple[int, int]] = []
        for rank, pid in self._well_ended:
            if is_group_alive(pid):
                still.append((rank, pid))
            else:
                self._outbox.send({"t": "absent", "rank": rank})
        self._well_ended = still

    def _clear_up(self) -> None:
        """Kill what ended ranks have left in their sessions; report those of which nothing is left."""
        if not self._ended:
            return
        session_of = {pid: session_id(pid) for pid in descendants(os.getpid())}
        still: list[tuple[RankProcess, int]] = []
        for process, code in self._ended:
            left = [pid for pid, session in session_of.items() if session == process.pid]
            for pid in left:
                send_signal(pid, signal.SIGKILL)
            if left and self._end_reason is None:
                still.append((process, code))
            else:
                self._pages[process.rank].clear()
                self._report_exit(process, code)
        self._ended = still

    # -- the end -----------------------------------------------------------------------------------------------------

    def _fail(self, reason: str, text: str) -> None:
        """End, and tell the launcher why, which fails the job."""
        self._outbox.send({"t": "fatal", "text": text})
        self._end(reason)

    def _end(self, reason: str, grace_seconds: float | None = None) -> None:
        """Ask the ranks to stop; what is left after the grace period is killed. A later call only hastens it."""
        if grace_seconds is None:
            grace_seconds = self._spec.grace_seconds if self._spec else 0.0
        kill_at = time.monotonic() + grace_seconds
        if self._end_reason is None:
            self._end_reason = reason
            self._kill_at = kill_at
            self._ask()
        self._kill_at = min(self._kill_at, kill_at)

    def _ask(self) -> None:
        """SIGTERM to the ranks and to what ended ones have left behind, once to each process."""
        tree = Tree()
        for child in tree.children(os.getpid()):
            if self._exporter is not None and child == self._exporter.pid:
                continue  # it ends after the last rank
            for pid in tree.to_end(child):
                if pid not in self._asked:
                    self._asked.add(pid)
                    send_signal(pid, signal.SIGTERM)

    def _give_up_soon(self) -> None:
        if self._give_up_at is None:
            grace_seconds = self._spec.grace_seconds if self._spec else 0.0
            self._give_up_at = time.monotonic() + grace_seconds + LAST_WORDS_SECONDS

    def _advance(self, children_left: bool) -> None:
        if self._done:
            return
        if self._store is not None and self._started and not self._ranks:
            self._store.kill()
        may_start = self._end_reason is None and self._spec is not None and self._spec.is_elastic
        if self._exporter is not None and not self._ranks and not may_start:
            self._exporter.end()
        if self._end_reason is None:
            if not self._started or self._ranks or may_start:
                return
            if children_left:
                self._end("finished")
        if not children_left:
            self._drain(list(self._pipes))
            for fd in list(self._pipes):
                self._close_pipe(fd)
            if not self._has_sent_records():
                return
            self._send_counters("counters", RankPage.at_the_end)
            self._outbox.send({"t": "done", "reason": self._end_reason or "finished"})
            self._done = True
        elif time.monotonic() >= self._kill_at:
            signal_descendants(signal.SIGKILL)
            self._kill_at = time.monotonic() + SWEEP_SECONDS

    def _has_sent_records(self) -> bool:
        """Send what the launcher can take of the records. Whether it has all, or takes no more."""
        if not self._records or self._is_collected or self._outbox.broken or self._give_up_at is not None:
            return True
        if self._unsent is None:
            self._unsent = self._all_records()
        while len(self._outbox) <= MAX_QUEUED_BYTES and (message := next(self._unsent, None)) is not None:
            self._outbox.send(message)
            self._outbox.flush()
        return False

    def _all_records(self) -> Iterator[Message]:
        for rank, file in self._records.items():
            for piece in file.pieces(protocol.CHUNK_BYTES):
                yield {"t": "records", "rank": rank, "raw": piece}
        yield {"t": "records_end"}

    def _finished(self) -> bool:
        if not self._done:
            return False
        gave_up = self._give_up_at is not None and time.monotonic() >= self._give_up_at
        return not self._outbox or self._outbox.broken or gave_up

    def _timeout(self) -> float | None:
        deadlines = [time.monotonic() + SWEEP_SECONDS] if self._ended else []
        if self._live is not None:
            deadlines.append(self._live.deadline)
        if self._stopped is not None and self._end_reason is None:
            deadlines.append(self._stopped.deadline)
        if self._silence is not None and not self._done:
            deadlines.append(self._silence.deadline)
        if self._end_reason is not None and not self._done and self._unsent is None:
            deadlines.append(self._kill_at)
        if self._done and self._give_up_at is not None:
            deadlines.append(self._give_up_at)
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None

    def _regulate(self) -> None:
        """Wake when the launcher can take more; leave output in the pipes while too much waits for it."""
        registered = self._outbox.fd in self._selector.get_map()
        if self._outbox and not registered:
            self._selector.register(self._outbox.fd, selectors.EVENT_WRITE, self._outbox.flush)
        elif not self._outbox and registered:
            self._selector.unregister(self._outbox.fd)
        for process in self._ranks.values():
            if process.line is not None and process.line.fd >= 0:
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if process.line.has_outgoing else 0)
                key = self._selector.get_key(process.line.fd)
                if key.events != events:
                    self._selector.modify(process.line.fd, events, key.data)
        pause = len(self._outbox) > MAX_QUEUED_BYTES
        if pause == self._paused:
            return
        for fd in self._pipes:
            if pause:
                self._selector.unregister(fd)
            else:
                self._selector.register(fd, selectors.EVENT_READ, lambda fd=fd: self._on_output(fd))
        self._paused = pause


def _hello() -> Message:
    system = os.uname()
    return {
        "t": "hello",
        "version": protocol.VERSION,
        "pid": os.getpid(),
        "host": system.nodename,
        "system": f"{system.sysname} {system.release} {system.machine}",
        "python": sys.version.split()[0],
        "cores": len(os.sched_getaffinity(0)),
    }


def _guard(worker: int) -> int:
    """Wait for the worker; end the processes that it leaves behind. Its exit status becomes the guardian's."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == worker:
            break
    if descendants(os.getpid()):
        kill_descendants()
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _forward_to(worker: int) -> None:
    def forward(_number: int, _frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGTERM)

    for number in END_SIGNALS:
        signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)


def main(parent: str = "0") -> None:
    """Run as an agent on stdin and stdout. ``parent``: the process id of the launcher, BY_SSH, or "0" for any other."""
    open_standard_streams()
    signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    become_subreaper()
    if parent not in ("0", BY_SSH):
        die_with_parent(signal.SIGTERM, int(parent))
    look = silence.of_connections([os.environ.get("SSH_CONNECTION", "")]) if parent == BY_SSH else None
    guardian = os.getpid()
    for number in PASSED_ON:  # for ranks; who signals all processes of a job means them as well
        signal.signal(number, signal.SIG_IGN)
    try:
        worker = os.fork()
    except OSError as error:
        sys.exit(NO_PROCESS if error.errno == errno.EAGAIN else f"cannot start a process: {error.strerror}")
    if worker == 0:
        become_subreaper()
        agent = Agent(0, 1, look)
        die_with_parent(signal.SIGTERM, guardian)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)
        agent.run()
        os._exit(0)
    _forward_to(worker)
    os._exit(_guard(worker))


if __name__ == "__main__":
    main(*sys.argv[1:2])
