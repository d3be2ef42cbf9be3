"""The launcher's event loop: starts an agent on every host, shows the ranks' output, ends all ranks when one fails.

All agents must have sent ``hello`` before any rank is started, so a host that cannot be used costs only a message. The
first rank to fail ends the job: the others get SIGTERM, then SIGKILL after the grace period. The launcher exits only
when every agent has reported that no process is left on its host, or when it has waited long enough for that.

In an elastic job a rank that fails does not end the job (`changing.py`).
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from functools import cache
from typing import Any

from ciranda._misspelt import TOLD, misspelt
from ciranda.launch import environment, protocol, reserved_port, silence, ssh, trace_counters
from ciranda.launch import store as stores
from ciranda.launch.changing import Changing, Launching
from ciranda.launch.collecting import Collecting, told
from ciranda.launch.control import Answer, Control
from ciranda.launch.counter_reports import CounterReports
from ciranda.launch.elastic import ElasticJob
from ciranda.launch.elastic_events import End
from ciranda.launch.environment import Meeting
from ciranda.launch.errors import LaunchError, ProtocolError
from ciranda.launch.failure import TAIL_BYTES, RankFailure, culprit, last_words, report
from ciranda.launch.held import Held
from ciranda.launch.hosts import Slot, by_host, positions
from ciranda.launch.job import Job, Outcome, Show
from ciranda.launch.job_log import JobLog
from ciranda.launch.link import AgentLink, Link
from ciranda.launch.live_timeline import LiveTimeline, Put
from ciranda.launch.orders import OwnVariables, orders
from ciranda.launch.output import Screen
from ciranda.launch.output_dir import RECORDS, OutputDir
from ciranda.launch.processes import PASSED_ON
from ciranda.launch.protocol import Message
from ciranda.launch.rates import by_rank
from ciranda.launch.reach import Reach, reach_for
from ciranda.launch.signals import empty, signals_to
from ciranda.launch.ssh import SshOptions
from ciranda.launch.stack_reports import RankStack
from ciranda.launch.stall_watch import StallWatch, Watched
from ciranda.launch.store import Store, StoreFactory
from ciranda.launch.stragglers import Stragglers
from ciranda.launch.trace_writer import TraceFile
from ciranda.launch.waits import awaited
from ciranda.launch.worlds import NewStore

MAX_QUEUED_BYTES = 4 << 20  # above this, nothing more is read from the agents until the screen has taken some
END_MARGIN_SECONDS = 0.7  # beyond the grace period, before agents are killed
STALL_SECONDS = 2.0  # to hear where the ranks stand that others have given up to wait for
NO_STORE = "elastic:0"  # where elastic ranks find a store before they are told of a world: settings must be complete
LOOK_SECONDS = 2.0  # between looks for stragglers, at least
SUSPICIOUS_LOOK_SECONDS = 0.2  # the same, once a rank may be one
JUDGED_SECONDS = 1.9  # that a judgement on them is about, at least
LOOK_RANKS_A_SECOND = 64  # that are looked at for them, at most: it is done in every job
RECORDS_SECONDS = 5.0  # without a piece of the records, before agents are killed
BLAME_SECONDS = 1.0  # to hear of the rank that was lost, when the first to fail says that another was


def launch(job: Job, ssh_options: SshOptions, show: Show, store_factory: StoreFactory = stores.engine_store) -> Outcome:
    """Run the job to its end and say how it ended. What failed is the last thing written to the screen.

    Raises:
        LaunchError: nothing was started, since the store or a host cannot be used.
    """
    ssh_options = replace(ssh_options, link_timeout_seconds=silence.limit_of({**os.environ, **job.env}))
    return launch_by(reach_for(list(by_host(job.slots)), ssh_options), job, show, store_factory)


def launch_by(reach: Reach, job: Job, show: Show, store_factory: StoreFactory = stores.engine_store) -> Outcome:
    """As launch(), but hosts are reached as ``reach`` says."""
    groups = by_host(job.slots)
    remote = [host for host in groups if not reach.is_here(host)]
    addresses_for = cache(lambda hosts: stores.bind_addresses(hosts, reach, job.network_interface))
    faced = remote
    if job.elastic is not None and job.elastic.finder is not None:
        faced = [host for host in remote if _is_faced(host, addresses_for)]  # ssh says what is wrong with the others
    ports = stores.parse_port_range(job.port_range) if job.port_range else range(1)

    def new_store(host_of_rank: Sequence[str]) -> tuple[Store, str]:
        addresses = addresses_for(tuple(host for host in dict.fromkeys(host_of_rank) if not reach.is_here(host)))
        store = stores.start_store(store_factory, addresses, ports, job.secret, len(host_of_rank), job.job_id)
        return store, stores.candidates(addresses, store.port)

    with ExitStack() as stack:
        run = _Run(job, show, addresses_for(tuple(faced))[0], ports)
        run.common_env = {"CIRANDA_JOB": job.job_id}
        if job.elastic is not None:
            stack.callback(run.be_elastic(job.elastic, new_store).close)
            run.common_env |= {"HOROVOD_ELASTIC": "1", "CIRANDA_STORE": NO_STORE}
        else:
            store, run.common_env["CIRANDA_STORE"] = new_store([slot.host for slot in job.slots])
            stack.callback(store.close)
            run.store = store
        run.connect(groups, set(remote), reach)
        run.tell_of_misspelt_names()
        where = run.common_env["CIRANDA_STORE"]
        run.note(f"job {job.job_id}: {len(job.slots)} ranks, store at {where}")
        run.open_control()
        return run.until_end()


def _is_faced(host: str, addresses_for: Callable[[tuple[str, ...]], list[str]]) -> bool:
    """Whether this machine has an address from which packets would go to the host."""
    try:
        return bool(addresses_for((host,)))
    except LaunchError:
        return False


class _Run:
    """The state of one running job."""

    def __init__(self, job: Job, show: Show, own_address: str, ports: range) -> None:
        self._job = job
        self._own_address = own_address
        self._ports = ports
        self._meeting: Meeting | None = None
        self._reserver: Link | None = None  # which is asked for it
        self._show = show
        self._output_dir = show.output_dir
        self._screen = Screen(show.screen)
        self._writer = show.writer
        self._links: list[Link] = []
        self._remote: set[str] = set()
        self._reach: Reach = SshOptions()
        self._late: list[Link] = []  # whose ranks are started once it is known
        self._told: dict[str, str] = {}  # the variables that all ranks get
        self.common_env: dict[str, str] = {}
        self.store: Store | None = None  # where all ranks meet, unless the job is elastic
        self._tails = {slot.rank: bytearray() for slot in job.slots}
        self._held = {slot.rank: Held() for slot in job.slots}
        self._host_of = {slot.rank: slot.host for slot in job.slots}
        self._counters = CounterReports("counters", self._host_of)
        self._totals = CounterReports("totals", self._host_of)
        self._stragglers = Stragglers(job.straggler_share, n_seconds=JUDGED_SECONDS)
        self._next_look: float | None = None  # at the totals
        self._collecting: Collecting | None = None  # for a timeline
        if job.recorded_steps is not None:
            self._collecting = Collecting(self._host_of, job.elastic is not None)
        self._live = LiveTimeline(
            self._host_of, self._links, lambda link: link.host not in self._remote, job.elastic is not None
        )
        self._log = JobLog(show.output_dir.directory if show.output_dir is not None else None)
        self._log.write_job(job)
        to_output_dir = self._to_output_dir if show.output_dir is not None else None
        self._stalls = StallWatch(Watched(self._links, self._host_of, self._counters, self._log, to_output_dir))
        self._is_hurried = False
        self._control: Control | None = None
        self._began = time.time()
        self._failures: list[RankFailure] = []
        self._outcome = Outcome()
        self._changing: Changing | None = None  # if the job is elastic
        self._is_host_lost = False
        self._started = False
        self._ending = False
        self._deadline: float | None = None  # for the phase: start, blame or end
        self._signals: list[int] = []

    # -- start -------------------------------------------------------------------------------------------------------

    def connect(self, groups: Mapping[str, list[Slot]], remote: set[str], reach: Reach) -> None:
        """Start an agent for every host."""
        self._remote = remote
        self._reach = reach
        for host, slots in groups.items():
            try:
                self._links.append(self._new_link(host, slots))
            except LaunchError:
                self._abandon()
                raise
            ranks = ", ".join(str(slot.rank) for slot in slots)
            self.note(f"{host} ({reach.label if host in remote else 'this machine'}): ranks {ranks}")

    def _new_link(self, host: str, slots: list[Slot]) -> Link:
        """Start an agent; LaunchError if that cannot be."""
        if host not in self._remote:
            return AgentLink(host, slots, ssh.local_command(self._job.python))
        inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        python_path = os.pathsep.join(os.path.abspath(path) for path in inherited if path)
        return self._reach.link(host, slots, self._job.python, python_path)

    def be_elastic(self, elastic: ElasticJob, new_store: NewStore) -> Changing:
        """Go on when ranks fail."""

        def say(text: str) -> None:
            self._say(f"ciranda: {text}")

        launching = Launching(self._links, self._new_agent, self._order, self._add_slot, say, self._end_as)
        self._changing = Changing(self._job, elastic, new_store, launching)
        return self._changing

    def _new_agent(self, host: str) -> Link:
        """Start an agent on a host that may be new, without a rank."""
        if not self._reach.is_here(host):
            self._remote.add(host)
        return self._new_link(host, [])

    def _add_slot(self, rank: int, host: str) -> bool:
        """Make a slot known; whether something can be started in it."""
        if rank in self._host_of:
            return True
        self._host_of[rank] = host
        self._tails[rank], self._held[rank] = bytearray(), Held()
        self._stalls.add(rank)
        self._to_output_dir(lambda files: files.add(rank))
        return not self._ending

    def _end_as(self, end: End, failure: RankFailure | None) -> None:
        """End an elastic job, as its supervisor says."""
        if failure is not None:
            self._failures.append(failure)
            self._say(f"ciranda: the job ends: {end.why}")
            self._end()
        elif end.why:
            self._fail(f"the job ends: {end.why}")
        else:
            self._end()

    def _ask_for_meeting(self) -> None:
        """Have rank 0's host keep ports for torch's store and JAX's coordinator, and host a store, if it can."""
        candidates = self._late or self._links
        if not candidates or not candidates[0].greeted or self._reserver is not None or self._ending:
            return
        self._reserver = first = candidates[0]
        address = "" if first.host in self._remote else self._own_address
        count = 2 if self._job.jax_native else 1
        # Of a range, the ranks need a port each, and the rendezvous one.
        has_room = self._ports == range(1) or len(self._ports) >= len(first.slots) + count + 2
        wants_store = has_room and self._job.env.keys().isdisjoint(environment.OF_STORE)
        interface = self._job.network_interface
        first.send(reserved_port.reserve_message(address, interface, self._ports, count, wants_store))

    def _start_ranks(self) -> None:
        self._started = True
        self._plan_look(len(self._job.slots))
        self._log.begin_looks()
        self._deadline = None
        slots = [slot for link in self._links for slot in link.slots]
        is_complete = len(slots) == len(self._job.slots)  # unless a host of an elastic job has not come
        numbers = slots if is_complete else positions([slot.host for slot in slots])
        own = {slot.rank: environment.identity(n, self._job.jax_native) for slot, n in zip(slots, numbers, strict=True)}
        for link in self._links:
            self._order(link, {slot.rank: own[slot.rank] for slot in link.slots})
        if self._changing is not None:
            self._changing.begin()

    def _meet_at(self, meeting: Meeting) -> None:
        self._meeting = meeting
        self.note(f"torch's store, if rank 0 makes one, is at {meeting.address}, port {meeting.port}")
        of_job = environment.of_job(self._job.job_id, meeting, self._job.slots)
        of_job["PADDLE_DISTRI_BACKEND"] = os.environ.get("PADDLE_DISTRI_BACKEND", "gloo")  # nothing else is for CPUs
        self._told = {**of_job, **self._job.env, **self.common_env}

    def _order(self, link: Link, ranks: OwnVariables) -> None:
        """Have an agent start these ranks, its first."""
        secret = "" if link.knows_secret else self._job.secret
        is_remote = link.host in self._remote
        try:
            link.send_in_turn(orders(self._job, link.host, ranks, self._told, secret, is_remote, link.connections()))
        except ProtocolError as error:
            self._fail(f"the command and its environment cannot be sent: {error}")

    # -- the loop ----------------------------------------------------------------------------------------------------

    def until_end(self) -> Outcome:
        """Run the loop until every agent has ended; then return the outcome."""
        self._deadline = time.monotonic() + self._job.start_timeout_seconds
        try:
            with signals_to(self._signals) as wake_fd:
                while self._goes_on():
                    self._turn(wake_fd)
        except BaseException:
            self._abandon()
            raise
        finally:
            if self._control is not None:
                self._control.close()
        for link in self._links:
            link.close()
        self._live.close()
        self._write_timeline()
        self._finish()
        self._log.write_end(self._outcome, [counters for _, counters in sorted(self._counters.last.items())])
        return self._outcome

    def _goes_on(self) -> bool:
        """Whether an agent lives, or another may come."""
        may_come = self._going_on is not None and self._going_on.may_grow
        return may_come or any(link.out_fd in link.open_fds for link in self._links)

    def _turn(self, wake_fd: int) -> None:
        with selectors.PollSelector() as selector:
            selector.register(wake_fd, selectors.EVENT_READ, lambda: empty(wake_fd))
            waiting_for = self._writer.waiting_for
            if waiting_for is not None:
                selector.register(waiting_for, selectors.EVENT_WRITE, self._writer.flush)
            for link in self._links:
                self._watch(link, selector)
            if self._control is not None:
                self._control.watch(selector)
            deadlines = [self._deadline, self._stalls.deadline, self._next_look]
            deadlines += [self._counters.deadline, self._totals.deadline]
            if not self._ending:
                deadlines.append(self._log.deadline)
            if self._collecting is not None:
                deadlines.append(self._collecting.deadline)
            deadlines.append(self._live.deadline)
            deadlines += [held.deadline for held in self._held.values()]
            deadlines += [link.silence.deadline for link in self._links if link.silence and link.open_fds]
            if self._going_on is not None:
                deadlines += self._going_on.deadlines
                if self._going_on.discovery_fd is not None:
                    selector.register(self._going_on.discovery_fd, selectors.EVENT_READ, self._on_discovery)
            due = min((deadline for deadline in deadlines if deadline is not None), default=None)
            timeout = None if due is None else max(0.0, due - time.monotonic())
            for key, _ in selector.select(timeout):
                action: Callable[[], None] = key.data
                action()
        while self._signals:
            self._on_signal(self._signals.pop(0))
        for link in self._links:
            link.look()
        for rank, held in self._held.items():
            self._put(rank, "stderr", held.expired())
        self._stalls.expire()
        if self._going_on is not None:
            self._going_on.on_time()
        self._counters.expire()
        self._totals.expire()
        if self._collecting is not None:
            self._collecting.compare(self._links)
        self._live.compare()
        if self._next_look is not None and time.monotonic() >= self._next_look:
            self._look()
        if not self._ending and self._log.is_due():
            self._counters.ask(self._links, self._log.write_look)
        self._check_output()
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._on_deadline()

    def _watch(self, link: Link, selector: selectors.PollSelector) -> None:
        if link.has_outgoing:
            selector.register(link.in_fd, selectors.EVENT_WRITE, link.flush)
        if link.err_fd in link.open_fds:
            selector.register(link.err_fd, selectors.EVENT_READ, lambda: self._on_stderr(link))
        if link.out_fd in link.open_fds and (self._is_interrupted or not self._is_screen_full):
            selector.register(link.out_fd, selectors.EVENT_READ, lambda: self._on_output(link))

    def _on_discovery(self) -> None:
        if self._going_on is not None:
            self._going_on.on_discovery()

    def _on_output(self, link: Link) -> None:
        if link.out_fd not in link.open_fds:
            return  # closed since it was looked at
        try:
            for message in link.read_messages():
                self._on_message(link, message)
        except (ProtocolError, LaunchError) as error:
            self._refuse(link, str(error))
        if link.out_fd not in link.open_fds:
            if link.done_reason is None:
                self._on_lost(link)
            if self._changing is not None:
                self._changing.on_link_read(link)

    def _on_stderr(self, link: Link) -> None:
        if link.err_fd not in link.open_fds:
            return  # likewise
        data = link.read_stderr()
        if data and link.greeted:
            for line in data.decode("utf-8", "surrogateescape").splitlines():
                self._say(f"ciranda: {link.host}: {line}")

    def _on_lost(self, link: Link) -> None:
        """Handle an agent that ended without a message."""
        link.done_reason = "lost"
        self._await_no_answer(link)
        if self._ending:
            return
        exit_code = link.close()
        words = link.stderr.decode("utf-8", "replace")
        if self._losing_hosts is not None:
            how = "its agent was lost" if link.greeted else self._reach.explain(link.host, exit_code, words)
            self._go_on_without(self._losing_hosts, link, how)
            return
        if not link.greeted:
            self._lose_host(self._reach.explain(link.host, exit_code, words))
        else:
            ranks = ", ".join(str(rank) for rank in sorted(link.running)) or "none"
            said = f"\n  it said: {words.strip()}" if words.strip() else ""
            self._lose_host(f"the agent on {link.host} was lost, and with it ranks {ranks}{said}")

    def _refuse(self, link: Link, why: str) -> None:
        """Do not use an agent any more: the job ends, unless it is elastic and has begun."""
        link.refuse(1, f"{link.host}: {why}")
        link.open_fds.clear()
        link.done_reason = "error"
        self._await_no_answer(link)
        if self._losing_hosts is not None and self._losing_hosts.has_world:
            self._go_on_without(self._losing_hosts, link, why)
        else:
            self._fail(f"{link.host}: {why}")

    def _await_no_answer(self, link: Link) -> None:
        self._stalls.end_of(link)
        self._counters.end_of(link)
        self._totals.end_of(link)
        self._live.end_of(link)

    def _go_on_without(self, changing: Changing, link: Link, how: str) -> None:
        """Do not wait for an agent of an elastic job any more, which is lost."""
        changing.on_link_lost(link, how)
        if self._collecting is not None:
            self._collecting.forget(link)
        self._late = [other for other in self._late if other is not link]
        if link is self._reserver and (self._meeting is None or not self._started):
            self._reserver = self._meeting = None
            self._ask_for_meeting()
        self._start_if_ready()

    # -- messages ----------------------------------------------------------------------------------------------------

    def _reports_of(self, kind: str) -> CounterReports:
        return self._counters if kind == "counters" else self._totals

    def _on_message(self, link: Link, message: Message) -> None:
        kind = message["t"]
        if kind == "data":
            self._on_data(link, self._rank_of(link, message), message)
        elif kind == "result":
            pieces = self._outcome.results.setdefault(self._rank_of(link, message), [])
            pieces.append(protocol.raw_of(message))
        elif kind == "exit":
            self._on_exit(link, self._rank_of(link, message), message)
        elif kind == "absent":
            self._on_absent(link.host, self._rank_of(link, message))
        elif kind == "word":
            if self._going_on is not None:
                self._going_on.on_word(self._rank_of(link, message), message)
        elif kind == "started":
            rank = self._rank_of(link, message)
            link.running.add(rank)
            self.note(f"rank {rank} on {link.host}: process {message.get('pid')}")
        elif kind == "stacks":
            self._stalls.take(self._rank_of(link, message), message)
        elif kind == "stacks_end":
            self._stalls.end_of(link)
        elif kind in ("counters", "totals"):
            rank = self._rank_of(link, message)
            self._reports_of(kind).take(rank, message, self._stalls.last_warning(rank))
        elif kind in ("counters_end", "totals_end"):
            self._reports_of(kind.removesuffix("_end")).end_of(link)
        elif kind in ("clock", "records", "records_end") and self._collecting is not None:
            self._on_collected(self._collecting, link, message)
        elif kind in ("clock", "records", "records_end") and self._live.is_on:
            self._live.take(link, self._rank_of, message)
        elif kind == "hello":
            self._on_hello(link, message)
        elif kind == "beat":
            pass
        elif kind == "reserved":
            self._on_reserved(link, message)
        elif kind == "note":
            text = f"{link.host}: {protocol.text_of(message, 'text')}"
            self._say(f"ciranda: warning: {text}") if message.get("warning") else self.note(text)
        elif kind == "fatal":
            text = protocol.text_of(message, "text")
            if self._going_on is not None and self._going_on.has_world:
                raise LaunchError(text)
            self._fail(f"{link.host}: {text}")
        elif kind == "done":
            link.done_reason = protocol.text_of(message, "reason")
            self._await_no_answer(link)
            if self._losing_hosts is not None:
                self._go_on_without(self._losing_hosts, link, f"its agent has ended: {link.done_reason}")
            elif not self._ending and link.done_reason != "finished":
                self._lose_host(f"the agent on {link.host} ended the job: {link.done_reason}")
        else:
            raise ProtocolError(f"unexpected message {kind!r} from the agent")

    def _on_hello(self, link: Link, message: Message) -> None:
        if message.get("version") != protocol.VERSION:
            raise ProtocolError(
                f"its ciranda speaks version {message.get('version')!r} of the protocol, this one {protocol.VERSION}: "
                f"install the same ciranda on every host"
            )
        link.greeted = True
        self.note(f"{link.host}: agent is process {message.get('pid')} on {message.get('host')}")
        about = {name: message.get(name) for name in ("system", "python", "cores")}
        self._log.write("host", host=link.host, node=message.get("host"), **about)
        if self._started:
            if self._collecting is not None:
                self._collecting.begin(link, link.host not in self._remote, lambda: self._on_late_hello(link))
            else:
                self._on_late_hello(link)
            return
        self._ask_for_meeting()
        if self._collecting is not None:
            self._collecting.begin(link, link.host not in self._remote, self._start_if_ready)
        self._start_if_ready()

    def _on_late_hello(self, link: Link) -> None:
        if self._meeting is None:  # no host has answered at the start
            self._late.append(link)
            self._ask_for_meeting()
        elif self._going_on is not None:
            self._going_on.on_hello(link)

    def _on_reserved(self, link: Link, message: Message) -> None:
        if link is not self._reserver or self._meeting is not None:
            raise ProtocolError("it reserved a port, which it was not asked to")
        self._meet_at(reserved_port.meeting_of(message))
        self._start_if_ready()
        while self._late:
            self._on_late_hello(self._late.pop(0))

    def _start_if_ready(self) -> None:
        is_comparing = self._collecting is not None and self._collecting.is_comparing
        if (self._links and self._meeting is None) or is_comparing or self._ending or self._started:
            return
        if all(link.greeted for link in self._links):
            self._start_ranks()

    def _on_collected(self, collecting: Collecting, link: Link, message: Message) -> None:
        """Take what an agent says for the timeline. While records come, agents are not killed for being late."""
        if message["t"] == "clock":
            collecting.on_clock(link, message)
        elif message["t"] == "records_end":
            collecting.on_end(link)
        else:
            collecting.on_records(self._rank_of(link, message), message)
        if self._ending and self._deadline is not None and not self._is_hurried:
            self._deadline = max(self._deadline, time.monotonic() + RECORDS_SECONDS)

    def _rank_of(self, link: Link, message: Message) -> int:
        rank = protocol.int_of(message, "rank", 0, max(self._host_of))
        if self._host_of.get(rank) != link.host:
            raise ProtocolError(f"rank {rank} is not its own")
        return rank

    def _on_data(self, link: Link, rank: int, message: Message) -> None:
        stream = protocol.text_of(message, "stream")
        data = protocol.unpack(protocol.text_of(message, "data"))
        if stream not in ("stdout", "stderr"):
            raise ProtocolError(f"unknown stream {stream!r}")
        if stream == "stderr":
            tail = self._tails[rank]
            tail += data
            del tail[:-TAIL_BYTES]
            self._look_where(self._stalls.feed(rank, data))
        self._keep(rank, stream, data)
        if link.shows_output:
            return
        if stream == "stderr" and not self._is_interrupted:
            data = self._held[rank].feed(data)
        self._put(rank, stream, data)

    # -- where ranks stand -------------------------------------------------------------------------------------------

    def _look_where(self, ranks: set[int]) -> None:
        """Others have waited for these ranks of their world for long: find where they stand, and say so."""
        if ranks and not self._ending:
            places = ranks if self._changing is None else self._changing.places_of(ranks)
            self._stalls.look(places, self._on_where)

    def _on_where(self, waited_for: Sequence[RankStack]) -> None:
        if self._failures:
            self._end()
            return
        for stack in waited_for:
            self._say(f"ciranda: {stack}")

    def _plan_look(self, n_ranks: int) -> None:
        """Set when the totals of all ranks are wanted next, for a timeline or for stragglers."""
        waits = [trace_counters.LOOK_SECONDS] if self._collecting is not None or self._live.is_recording else []
        if self._job.straggler_share > 0 and n_ranks > 1:
            waits.append(SUSPICIOUS_LOOK_SECONDS if self._stragglers.is_suspicious else LOOK_SECONDS)
        self._next_look = time.monotonic() + max(min(waits), n_ranks / LOOK_RANKS_A_SECOND) if waits else None

    def _look(self) -> None:
        self._next_look = None
        if not self._ending:
            self._totals.ask(self._links, self._on_totals)

    def _on_totals(self, totals: Sequence[dict[str, Any]]) -> None:
        if self._collecting is not None:
            self._collecting.on_totals(totals)
        self._live.on_totals(totals)
        if self._job.straggler_share > 0:
            self._look_for_stragglers(totals)
        self._plan_look(len(totals))

    def _look_for_stragglers(self, totals: Sequence[dict[str, Any]]) -> None:
        straggler = self._stragglers.look(by_rank({"counters": self._in_order(totals)}))
        if straggler is not None and not self._ending:
            look = f"ciranda stacks {self._job.job_id[:4]} --ranks {straggler.row.rank} --samples 40"
            self._say(f"ciranda: warning: {straggler}. In which lines: {look}")
            self._log.write("straggler", rank=straggler.row.rank, text=str(straggler))

    def _in_order(self, totals: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those of ranks, in their order, from those of places."""
        return [*totals] if self._changing is None else self._changing.by_rank(totals)

    def open_control(self) -> None:
        """Let the user ask about the job from other terminals."""
        answers: dict[str, Answer] = {
            "jobs": lambda put: put(self._description()),
            "totals": self._tell_totals,
            "stacks": lambda put: self._stalls.ask(lambda stacks: put({"stacks": [*map(asdict, stacks)]})),
            "record": self._record,
            "record end": self._live.end,
        }
        self._control = Control(self._job.job_id, answers)

    def _tell_totals(self, put: Put) -> None:
        self._totals.ask(self._links, lambda totals: put({"counters": self._in_order(totals)}))

    def _record(self, put: Put) -> None:
        if self._job.recorded_steps is not None:
            put({"refused": "its calls are recorded already, as --timeline or --timeline-steps says"})
        elif not self._started or self._ending:
            put({"refused": "its ranks do not run"})
        else:
            self._live.begin(put)
            self._next_look = time.monotonic()

    def _description(self) -> dict[str, object]:
        return {
            "pid": os.getpid(),
            "began": self._began,
            "ranks": len(self._job.slots),
            "hosts": [link.host for link in self._links],
            "command": self._job.argv,
        }

    def _put(self, rank: int, stream: str, data: bytes) -> None:
        """Show it. After an interruption the agents are read to their end, whether or not anybody reads the screen."""
        if data and not (self._is_interrupted and self._is_screen_full):
            self._writer.put(self._screen.feed(rank, stream, data))

    def _keep(self, rank: int, stream: str, data: bytes) -> None:
        """Append it to the rank's own file, if there are any."""
        self._to_output_dir(lambda files: files.write(rank, stream, data))

    def _to_output_dir(self, write: Callable[[OutputDir], None]) -> None:
        if self._output_dir is None:
            return
        try:
            write(self._output_dir)
        except LaunchError as error:
            self._output_dir = None
            self._fail(str(error))

    @property
    def _going_on(self) -> Changing | None:
        """What lets an elastic job change, until that ends."""
        return None if self._ending else self._changing

    @property
    def _losing_hosts(self) -> Changing | None:
        """The same, if it goes on without a host that is lost: at the start, one of those that are discovered."""
        changing = self._going_on
        return changing if changing is not None and (self._started or changing.may_grow) else None

    @property
    def _is_interrupted(self) -> bool:
        return self._outcome.interrupted_by is not None

    @property
    def _is_screen_full(self) -> bool:
        return self._writer.n_queued_bytes > MAX_QUEUED_BYTES

    def _on_exit(self, link: Link, rank: int, message: Message) -> None:
        link.running.discard(rank)
        code = protocol.int_of(message, "code", -64, 255)
        is_failure = code != 0 and message.get("ended") is not True
        stopped_seconds = protocol.seconds_of(message, "stopped") if "stopped" in message else 0.0
        failure = RankFailure(
            rank, link.host, code, bytes(self._tails[rank]), message.get("memory") is True, stopped_seconds
        )
        asked = message.get("ended") is True
        self._log.write("exit", rank=rank, host=link.host, code=code, asked=asked, how=failure.how())
        if self._going_on is not None:
            self._on_exit_of_elastic(self._going_on, failure)
            return
        if not is_failure:
            self._put(rank, "stderr", self._held[rank].take())
        self._writer.put(self._screen.finish(rank))
        if not is_failure:
            return
        self._failures.append(failure)
        if self._ending:
            return
        stalled = awaited(last_words(failure.stderr_tail))
        if stalled:
            if self._deadline is None:
                self._deadline = time.monotonic() + STALL_SECONDS
                self._look_where(stalled)
        elif failure.is_secondhand and any(other.running for other in self._links):
            if self._deadline is None:
                self._deadline = time.monotonic() + BLAME_SECONDS
        else:
            self._end()

    def _on_absent(self, host: str, rank: int) -> None:
        """A rank has ended well: have those fail that wait for it in init(), if any ever do."""
        if self.store is not None:
            self.store.lose(
                rank,
                f"its process on {host} has ended with exit status 0: all ranks must call init() equally often; see "
                "that the script does not end early on some, or start fewer ranks",
            )

    def _on_exit_of_elastic(self, changing: Changing, failure: RankFailure) -> None:
        rank = failure.rank
        self._tails[rank].clear()
        if failure.exit_code != 0:
            self._outcome.results.pop(rank, None)
        changing.on_exit(failure)
        if not self._failures:
            self._put(rank, "stderr", self._held[rank].take())
        self._writer.put(self._screen.finish(rank))

    def _check_output(self) -> None:
        """End the job if its output is lost: it must neither seem to succeed nor continue unseen."""
        failure = self._writer.failure
        if failure is not None and self._outcome.message is None:
            self._fail(f"{failure}: the job is ended", failure.exit_code)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _fail(self, text: str, exit_code: int = 1) -> None:
        """The job cannot go on, for a reason that is not a rank's."""
        if self._outcome.message is None and not self._failures:
            self._outcome.message = text
            self._outcome.exit_code = exit_code
        self._end()

    def _lose_host(self, text: str) -> None:
        """A host did not come, or is gone: the cause, unless a rank has failed by itself before."""
        self._is_host_lost = all(failure.is_secondhand for failure in self._failures)
        if self._is_host_lost:
            self._failures.clear()
        self._fail(text, 1 if self._job.lost_host_code is None else self._job.lost_host_code)

    def _end(self, grace_seconds: float | None = None) -> None:
        """Request every agent to stop its ranks, once; a later call shortens the grace period."""
        if grace_seconds is None:
            if self._ending:
                return
            grace_seconds = self._job.grace_seconds
        deadline = time.monotonic() + grace_seconds + END_MARGIN_SECONDS
        self._deadline = min(self._deadline or deadline, deadline) if self._ending else deadline
        self._ending = True
        for link in self._links:
            if link.done_reason is not None:
                continue
            if link.greeted:
                link.send_end(grace_seconds)
            else:
                signal_number = self._outcome.interrupted_by
                code = self._outcome.exit_code or 1 if signal_number is None else 128 + signal_number
                link.refuse(code, self._outcome.message)

    def _on_signal(self, number: int) -> None:
        if number in PASSED_ON:
            self.note(f"{signal.Signals(number).name}: passed on to all ranks")
            for link in self._links:
                link.send({"t": "signal", "number": int(number)})
        elif self._outcome.interrupted_by is None:
            self._outcome.interrupted_by = number
            self._show_held()
            hint = " (again to kill them at once)" if number == signal.SIGINT else ""
            self._say(f"ciranda: {signal.Signals(number).name}: ending all ranks{hint}")
            self._end()
        else:
            self._is_hurried = True
            self._end(0.0)

    def _on_deadline(self) -> None:
        self._deadline = None
        if self._ending:
            for link in self._links:
                if link.open_fds:
                    link.kill()
                    link.open_fds.clear()
        elif self._failures:
            self._end()
        elif not self._started:
            self._on_silent([link for link in self._links if not link.greeted] or self._links[:1])

    def _on_silent(self, links: Sequence[Link]) -> None:
        """These agents have not answered in time."""
        within = f"within {self._job.start_timeout_seconds:g} s"
        if self._losing_hosts is not None:
            self._deadline = time.monotonic() + self._job.start_timeout_seconds
            for link in links:
                link.kill()
                link.done_reason = "silent"
                self._go_on_without(self._losing_hosts, link, f"it has not answered {within}")
            return
        silent = ", ".join(link.host for link in links)
        words = b"".join(bytes(link.stderr) for link in links if not link.greeted).decode("utf-8", "replace")
        said = f"\n  it said: {words.strip()}" if words.strip() else ""
        self._lose_host(f"no answer from {silent} {within}: check the host, or raise --start-timeout{said}")

    def _write_timeline(self) -> None:
        """Keep and merge what the ranks have recorded, also those of a job that has failed."""
        if self._collecting is None:
            return
        with closing(self._collecting):
            # At a place of an elastic job, one process follows another.
            if self._output_dir is not None and self._changing is None:
                for rank, piece in self._collecting.records():
                    self._keep(rank, RECORDS, piece)
                self._log.write("records", clocks=self._collecting.clocks(), failure=self._collecting.failure)
            if self._show.timeline is not None:
                self._merge(self._collecting, self._show.timeline)
            elif self._collecting.failure is not None:
                self._say(f"ciranda: warning: not all recorded calls could be kept: {self._collecting.failure}")

    def _merge(self, collecting: Collecting, to: TraceFile) -> None:
        try:
            summary = collecting.write(to, self._job.job_id, self._job.argv)
        except (OSError, ProtocolError) as error:
            self._say(f"ciranda: warning: the timeline is incomplete: {error}")
            if self._outcome.exit_code == 0:
                self._outcome.exit_code = 1
            return
        for text in told(summary, self._job.recorded_steps or (0, 0), to.path):
            self._say(f"ciranda: {text}")

    def _finish(self) -> None:
        """Show what is left, then the reason of the failure, last."""
        outcome = self._outcome
        patience_seconds = 0.2 if self._is_interrupted else 3600
        if self._changing is not None:
            outcome.ranks = self._changing.slots_by_rank
        if self._failures and not self._is_interrupted and not self._is_host_lost:
            outcome.failure = culprit(self._failures)
            outcome.exit_code = outcome.failure.exit_code
            if outcome.failure.is_secondhand and self._job.lost_host_code is not None:
                outcome.exit_code = self._job.lost_host_code
            outcome.message = "\n".join([report(outcome.failure), *self._stalls.last_lines(outcome.failure, False)])
            self._drop_what_is_reported(outcome.failure)
        self._show_held()
        for rank in self._host_of:
            self._writer.put(self._screen.finish(rank))
        self._writer.flush(patience_seconds)
        self._check_output()
        if outcome.interrupted_by is not None:
            outcome.exit_code = 128 + outcome.interrupted_by
            for line in self._stalls.last_lines(outcome.failure, True):
                self._say(line)
            self._say(f"ciranda: {signal.Signals(outcome.interrupted_by).name} has ended the job")
        elif outcome.failure is None and outcome.message is not None:
            self._say(f"ciranda: {outcome.message}")
        elif outcome.message is not None and self._show.report:
            self._say(outcome.message)
        self._writer.flush(patience_seconds)

    def _show_held(self) -> None:
        for rank, held in self._held.items():
            self._put(rank, "stderr", held.take())

    def _drop_what_is_reported(self, failure: RankFailure) -> None:
        """Do not show what is kept back of a rank where the report shows all of it."""
        kept = self._held[failure.rank].take()
        if kept.rstrip() not in last_words(failure.stderr_tail):
            self._put(failure.rank, "stderr", kept)

    def _abandon(self) -> None:
        for link in self._links:
            link.kill()
            link.close()

    def tell_of_misspelt_names(self) -> None:
        """Warn of what is set for the ranks and looks like a setting, but is none; they need not warn again."""
        try:
            from ciranda._core import settings  # the launcher runs without the engine, too
        except ImportError:  # which matters only to those who use the engine
            return
        inherited = environment.forwarded(os.environb, remote=False, exclude=self._job.exclude_env)
        found = misspelt({*map(os.fsdecode, inherited), *self._job.env}, [row["name"] for row in settings()])
        for sentence in found.values():
            self._say(f"ciranda: warning: {sentence}")
        if found:
            self.common_env[TOLD] = ",".join(found)

    def _say(self, text: str) -> None:
        self._writer.put(self._screen.say(text))

    def note(self, text: str) -> None:
        """Say it in verbose mode."""
        if self._show.verbose:
            self._say(f"ciranda: {text}")
