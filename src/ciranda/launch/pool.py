"""``Pool``: ranks that stay between calls, as between the cells of a notebook."""

from __future__ import annotations

import atexit
import os
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from ciranda.launch import pool_rank, protocol
from ciranda.launch import store as stores
from ciranda.launch.api import RunOptions, chosen_hosts, job_of
from ciranda.launch.channel import Channel
from ciranda.launch.errors import LaunchError
from ciranda.launch.failure import RankFailure, culprit, report
from ciranda.launch.gathering import Gathering
from ciranda.launch.handshake import Terms
from ciranda.launch.hosts import assign, by_host
from ciranda.launch.job import Job, Outcome, Show
from ciranda.launch.launcher import launch
from ciranda.launch.link import DialledLink
from ciranda.launch.marked_output import MarkedOutput, new_mark, unmarked
from ciranda.launch.output import ScreenStyle
from ciranda.launch.processes import open_standard_streams
from ciranda.launch.protocol import Message
from ciranda.launch.reach import reach_for
from ciranda.launch.sent_function import packed
from ciranda.launch.ssh import SshOptions

Result = TypeVar("Result")

_BLAME_SECONDS = 2.0  # for ranks to fail because another has, before they are interrupted
_AGAIN_SECONDS = 0.5  # between interruptions of a rank that goes on
_SILENCE_SECONDS = 5.0  # when all results are there: without output, of a rank that has closed its own
_OUTPUT_SECONDS = 60.0  # then, of ranks that write on and on
_STUBBORN_SECONDS = 10.0  # until a pool is closed whose ranks do not heed an interruption
_END_SECONDS = 30.0


class _Call:
    """One call under way."""

    def __init__(self, np: int) -> None:
        self.pieces: list[bytearray] = [bytearray() for _ in range(np)]
        self.states: dict[int, str] = {}
        self.answered_at: float | None = None
        self.interrupted_at: float | None = None  # when Ctrl-C came
        self.interrupt_at: float | None = None  # when to interrupt ranks next


class Pool:
    """``np`` ranks on this machine, which run functions one after another, also those of several threads.

    For the process that has made it; one that is forked needs a pool of its own.
    ``with Pool(np=4) as pool: pool.run(function)``; or call close(). They also end with this process.

    With ``hosts`` or a ``hostfile`` they are there instead; in an allocation of Slurm, on its nodes.
    """

    def __init__(
        self,
        np: int | None = None,
        hosts: str | None = None,
        hostfile: str | Path | None = None,
        options: RunOptions | None = None,
    ) -> None:
        """Start the ranks, and wait until all are there.

        Args:
            np, hosts, hostfile: as in `run`.
            options: as in `run`, but without effect of ``output_dir``, and no ``elastic``.

        Raises:
            HostsError: the hosts or ``np`` are invalid.
            LaunchError: a host cannot be used, or the ranks cannot be started.
        """
        open_standard_streams()
        options = options or RunOptions()
        if options.elastic is not None:
            raise LaunchError("a pool cannot be elastic: leave out elastic=", exit_code=2)
        slots = assign(chosen_hosts(np, hosts, hostfile), np)
        self._hosts = [slot.host for slot in slots]
        self._np = len(slots)
        self._output = MarkedOutput()
        self._outcome: Outcome | LaunchError | None = None
        self._channels: list[Channel] = []
        self._links: list[DialledLink] = []
        self._owner = os.getpid()
        self._in_use = threading.RLock()  # while a call is under way
        self._number = 0
        self._shown_at = 0.0  # when there was output last
        self._is_dirty = False  # a call has failed: the ranks must meet anew
        self._epoch = 0
        self._is_closed = False
        job = job_of(options, [options.ssh.remote_python or options.python, "-m", pool_rank.__name__], slots)
        gathering = _gathering_of(job, options.ssh)
        job.env = {**job.env, pool_rank.ADDRESS: ",".join(f"{address} {port}" for address, port in gathering.ends)}
        self._thread = threading.Thread(target=self._launch, args=(job, options), daemon=True, name="ciranda pool")
        self._thread.start()
        atexit.register(self.close)
        try:
            if not gathering.wait(options.start_timeout, self._require_job):
                raise LaunchError(f"the ranks were not there within {options.start_timeout:g} s")
            self._channels = [channel for _, channel in sorted(gathering.take().items())]
            self._links = [DialledLink(f"rank {rank}", [], each) for rank, each in enumerate(self._channels)]
        except BaseException:
            gathering.close()
            self.close()
            raise
        gathering.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(
        self, func: Callable[..., Result], args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
    ) -> list[Result]:
        """Call ``func(*args, **kwargs)`` on all ranks and return their results, in rank order.

        What ranks write meanwhile appears on ``sys.stdout`` and ``sys.stderr``. The function, its arguments and its
        results are sent by cloudpickle.

        Raises:
            LaunchError: the function raised on a rank, whose traceback is the message: the pool can be used on. Or a
                rank has ended: the pool is closed. Or another thread has closed it.
            KeyboardInterrupt: after Ctrl-C. The function was interrupted on all ranks, and the pool can be used on.
        """
        if os.getpid() != self._owner:
            raise LaunchError("the pool belongs to the process that has made it: make another one here")
        with self._in_use:
            if self._is_closed:
                raise LaunchError("the pool is closed")
            return self._run(func, args, kwargs)

    def _run(
        self, func: Callable[..., Result], args: Sequence[object], kwargs: Mapping[str, object] | None
    ) -> list[Result]:
        import cloudpickle

        payload = packed(func, args, kwargs)
        self._number += 1
        mark = new_mark()
        self._output.expect(mark)
        asked = {"t": "call", "number": self._number, "mark": mark, "anew": self._is_dirty, "epoch": self._epoch}
        for link in self._links:
            link.send_in_turn(_pieces(payload, asked))
        call = _Call(self._np)
        self._is_dirty = True  # unless all goes well
        self._finish(call)
        raised = [rank for rank, state in sorted(call.states.items()) if state == "raised"]
        if raised:
            failure = culprit([RankFailure(rank, self._hosts[rank], 1, bytes(call.pieces[rank])) for rank in raised])
            words = failure.stderr_tail.decode("utf-8", "replace").rstrip()
            raise LaunchError(f"rank {failure.rank} raised:\n{words}", 1, failure)
        if "interrupted" in call.states.values():
            raise KeyboardInterrupt
        self._is_dirty = False
        return [cloudpickle.loads(bytes(pieces)) for pieces in call.pieces]

    def close(self) -> None:
        """End the ranks, also those that run a function for another thread. Idempotent."""
        if self._is_closed or os.getpid() != self._owner:
            return
        self._is_closed = True
        atexit.unregister(self.close)
        for link in self._links:
            link.kill()  # upon which a call that is under way fails
        with self._in_use:
            for link in self._links:
                link.close()
            for channel in self._channels:
                channel.socket.close()
            self._thread.join(_END_SECONDS)
            self._show()
            self._output.close()

    # -- the job, in a thread ----------------------------------------------------------------------------------------

    def _launch(self, job: Job, options: RunOptions) -> None:
        show = Show(ScreenStyle(prefix=options.prefix), None, options.verbose, report=False, writer=self._output)
        try:
            self._outcome = launch(job, options.ssh, show, options.store_factory)
        except LaunchError as error:
            self._outcome = error
        self._output.put([])  # wakes who waits

    def _require_job(self, otherwise: str = "the ranks have ended") -> None:
        """Raise LaunchError if the job has ended: why, or ``otherwise`` if it ended well."""
        outcome = self._outcome
        if isinstance(outcome, LaunchError):
            raise outcome
        if outcome is not None:
            failure, message = outcome.failure, outcome.message or otherwise
            if failure is not None:
                clean = replace(failure, stderr_tail=unmarked(failure.stderr_tail))
                failure, message = clean, message.replace(report(failure), report(clean))
            raise LaunchError(message, outcome.exit_code or 1, failure)

    # -- a call ------------------------------------------------------------------------------------------------------

    def _finish(self, call: _Call) -> None:
        """Serve until all ranks have answered, and their output is shown; then raise for a Ctrl-C that has come."""
        with self._interruptions() as received:
            while not self._is_complete(call):
                self._turn(call)
                now = time.monotonic()
                if received and call.interrupt_at is None:
                    call.interrupt_at = call.interrupted_at = now
                is_stubborn = call.interrupted_at is not None and now > call.interrupted_at + _STUBBORN_SECONDS
                if len(received) > 1 or is_stubborn:
                    self.close()
                    raise KeyboardInterrupt
                if call.interrupt_at is not None and now >= call.interrupt_at:
                    call.interrupt_at = now + _AGAIN_SECONDS
                    self._send_interruption(call)
        self._show()
        if received:
            raise KeyboardInterrupt

    @contextmanager
    def _interruptions(self) -> Iterator[list[int]]:
        """Collect Ctrl-C instead of raising wherever it comes, as in the middle of a message."""
        received: list[int] = []

        def collect(number: int, _frame: object) -> None:
            received.append(number)
            self._output.wake()

        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):
            yield received
            return
        previous = signal.signal(signal.SIGINT, collect)
        try:
            yield received
        finally:
            signal.signal(signal.SIGINT, previous)

    def _is_complete(self, call: _Call) -> bool:
        if len(call.states) < self._np:
            return False
        if self._output.n_marks >= 2 * self._np:
            return True
        now = time.monotonic()
        call.answered_at = call.answered_at or now
        is_silent = now > max(call.answered_at, self._shown_at) + _SILENCE_SECONDS
        return is_silent or now > call.answered_at + _OUTPUT_SECONDS

    def _send_interruption(self, call: _Call) -> None:
        for rank, link in enumerate(self._links):
            if rank not in call.states:
                link.send({"t": "interrupt", "number": self._number})

    def _turn(self, call: _Call) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._output.wake_fd, selectors.EVENT_READ, self._show)
            for rank, link in enumerate(self._links):
                if link.has_outgoing:
                    selector.register(link.in_fd, selectors.EVENT_WRITE, link.flush)
                if link.out_fd in link.open_fds:
                    selector.register(link.out_fd, selectors.EVENT_READ, partial(self._hear, call, rank, link))
            for key, _ in selector.select(_AGAIN_SECONDS):
                key.data()
        if self._outcome is not None and not self._is_closed:  # of a host that is cut off nothing else is heard
            self.close()
            self._require_job()

    def _hear(self, call: _Call, rank: int, link: DialledLink) -> None:
        for message in link.read_messages():
            if message["t"] == "piece":
                call.pieces[rank] += protocol.raw_of(message)
            elif message["t"] == "result":
                call.states[rank] = protocol.text_of(message, "state")
                self._epoch = max(self._epoch, protocol.int_of(message, "epoch", 0, 1 << 60))
                if call.states[rank] == "raised" and call.interrupt_at is None:
                    call.interrupt_at = time.monotonic() + _BLAME_SECONDS
        if link.out_fd not in link.open_fds:
            if self._is_closed:
                raise LaunchError("the pool was closed by another thread")
            self.close()
            self._require_job(f"rank {rank} has ended: the function must return, not exit")

    def _show(self) -> None:
        shown = self._output.take()
        if shown:
            self._shown_at = time.monotonic()
        for fd, data in shown:
            stream: Any = sys.stdout if fd == 1 else sys.stderr
            stream.write(data.decode("utf-8", "replace"))
        sys.stdout.flush()
        sys.stderr.flush()


def _gathering_of(job: Job, ssh: SshOptions) -> Gathering:
    """Listen for the ranks of a job, where their hosts can reach this process.

    Raises:
        LaunchError: no address faces a host, or no port is free.
    """
    hosts = list(by_host(job.slots))
    reach = reach_for(hosts, ssh)
    remote = [host for host in hosts if not reach.is_here(host)]
    addresses = stores.bind_addresses(remote, reach, job.network_interface)
    terms = Terms(bytes.fromhex(job.secret), job.job_id, len(job.slots) + 1)
    failure: OSError | None = None
    for port in stores.parse_port_range(job.port_range) if job.port_range else range(1):
        try:
            return Gathering(port, terms, addresses)
        except OSError as error:
            failure = error
    raise LaunchError(f"the pool cannot listen on {', '.join(addresses)}: {failure}")


def _pieces(payload: bytes, call: Message) -> Iterator[Message]:
    for start in range(0, len(payload), protocol.CHUNK_BYTES):
        yield {"t": "piece", "raw": payload[start : start + protocol.CHUNK_BYTES]}
    yield call
