"""An elastic job within the launcher: its worlds, the agents that come and go, and the hosts that are discovered.

Here a rank's number is that of its slot, and its processes follow one another. `worlds.py` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ciranda.launch.discovery import Discovery
from ciranda.launch.elastic import ElasticJob
from ciranda.launch.elastic_events import End
from ciranda.launch.errors import LaunchError
from ciranda.launch.failure import RankFailure
from ciranda.launch.job import Job
from ciranda.launch.late_hosts import LateHosts
from ciranda.launch.link import Link
from ciranda.launch.orders import OwnVariables
from ciranda.launch.protocol import Message, word_of
from ciranda.launch.worlds import NewStore, Worlds


@dataclass(frozen=True)
class Launching:
    """What the launcher does for it.

    Attributes:
        links: to the agents that there are.
        new_link: starts an agent on a host; LaunchError if that cannot be.
        order: sends an agent its orders, with its first ranks.
        add: makes a slot known, on its host, unless it is; False if that has ended the job.
        say: tells the user.
        end: ends the job; called once.
    """

    links: list[Link]
    new_link: Callable[[str], Link]
    order: Callable[[Link, OwnVariables], None]
    add: Callable[[int, str], bool]
    say: Callable[[str], None]
    end: Callable[[End, RankFailure | None], None]


class Changing:
    """What makes the job go on when ranks fail, until it ends."""

    def __init__(self, job: Job, elastic: ElasticJob, new_store: NewStore, launching: Launching) -> None:
        self._elastic = elastic
        self._launching = launching
        self._grace_seconds = job.grace_seconds
        self._host_of = {slot.rank: slot.host for slot in job.slots}
        self._worlds = Worlds(elastic, job.slots, new_store, self._send, self._start_slot, launching.say, self._end_as)
        self._late = LateHosts(job.start_timeout_seconds, launching.order)
        self._discovery: Discovery | None = None
        self._has_begun = False
        self._lost: list[str] = []  # the hosts that did not come at the start
        self._survived: dict[int, RankFailure] = {}  # the last one of each slot that did not end the job

    def by_rank(self, counters: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The counters of the last world's ranks, in their order, from those of places."""
        of_slot = {each["rank"]: each for each in counters}
        ranks = enumerate(self.slots_by_rank)
        return [{**of_slot[slot], "rank": rank} for rank, slot in ranks if slot in of_slot]

    def places_of(self, ranks: Iterable[int]) -> set[int]:
        """The slots that have these ranks of the last world."""
        of_rank = dict(enumerate(self.slots_by_rank))
        return {of_rank[rank] for rank in ranks if rank in of_rank}

    def begin(self) -> None:
        """The ranks of the first world are started: ask for other hosts, if they are to be discovered."""
        self._has_begun = True
        if self._elastic.finder is not None:
            self._worlds.on_offer(self._elastic.hosts)
            self._discovery = Discovery(self._elastic.finder, self._elastic.hosts)
        while self._lost:
            self._on_host_lost(self._lost.pop(0))

    def close(self) -> None:
        """Stop asking for hosts, and close the store of the present world."""
        if self._discovery is not None:
            self._discovery.close()
        self._discovery = None
        self._worlds.close()

    @property
    def may_grow(self) -> bool:
        """Whether agents may come, though there is none."""
        return self._elastic.finder is not None

    @property
    def has_world(self) -> bool:
        """Whether one was formed."""
        return self._worlds.has_begun

    @property
    def slots_by_rank(self) -> list[int]:
        """Those of the last world."""
        return self._worlds.slots_by_rank

    # -- the loop ----------------------------------------------------------------------------------------------------

    @property
    def deadlines(self) -> list[float | None]:
        """When to call on_time() at the latest."""
        return [self._worlds.deadline, self._late.deadline]

    @property
    def discovery_fd(self) -> int | None:
        """Readable when on_discovery() is to be called; None if hosts are not discovered."""
        return None if self._discovery is None else self._discovery.fd

    def on_time(self) -> None:
        """Do what is due, after each turn."""
        self._worlds.on_time()
        self._late.on_time()
        if self._discovery is not None:
            self._late.send_away(self._launching.links, self._worlds.hosts_in_use, self._grace_seconds)

    def on_discovery(self) -> None:
        """Other hosts are there, or no answer."""
        if self._discovery is None:
            return
        hosts, warning = self._discovery.take()
        if warning:
            self._launching.say(f"warning: {warning}")
        if hosts is not None:
            self._launching.say(f"hosts: {', '.join(f'{host.name}:{host.slots}' for host in hosts) or 'none'}")
            self._worlds.on_offer(hosts)

    # -- agents ------------------------------------------------------------------------------------------------------

    def on_hello(self, link: Link) -> None:
        """An agent has answered that was started while the job runs."""
        self._late.on_hello(link)

    def on_link_lost(self, link: Link, how: str) -> None:
        """An agent has ended while the job runs, or has not come at the start."""
        link.running.clear()
        if self._late.is_sent_away(link):
            return
        self._launching.say(f"{link.host} is {'lost' if self.may_grow else 'used no more'}: {how}")
        if self.may_grow:
            self._forget(link)
        if self._has_begun:
            self._on_host_lost(link.host)
        else:
            self._lost.append(link.host)

    def _on_host_lost(self, host: str) -> None:
        self._worlds.on_host_lost(host, f"{host} was lost")

    def on_link_read(self, link: Link) -> None:
        """Nothing more comes from an agent."""
        if self._late.is_sent_away(link):
            self._forget(link)

    def _forget(self, link: Link) -> None:
        """This agent is gone, and others may come to its host."""
        link.close()
        self._launching.links.remove(link)

    # -- ranks -------------------------------------------------------------------------------------------------------

    def on_word(self, rank: int, message: Message) -> None:
        """A rank says something; ProtocolError if that is no word."""
        self._worlds.on_word(rank, word_of(message))

    def on_exit(self, failure: RankFailure) -> None:
        """A rank has ended, which is no failure if its exit code is 0."""
        is_failure = failure.exit_code != 0
        if is_failure:
            self._survived[failure.rank] = failure
        self._worlds.on_exit(failure.rank, is_failure, failure.how())

    def _start_slot(self, rank: int, host: str, env: Mapping[str, str]) -> None:
        """Start the next process of a slot, which may be new, and so may be its host."""
        self._host_of.setdefault(rank, host)
        if not self._launching.add(rank, host):
            return
        link = self._link_to(host)
        if link is None:
            try:
                link = self._launching.new_link(host)
            except LaunchError as error:
                self._launching.say(str(error))
                self._worlds.on_host_lost(host, str(error))
                return
            self._launching.links.append(link)
            self._late.expect(link)
        self._late.start(link, rank, env)

    def _send(self, rank: int, message: Message) -> None:
        link = self._link_to(self._host_of[rank])
        if link is not None and not self._late.send(link, rank, message):
            self._worlds.on_exit(rank, False, "not started")

    def _link_to(self, host: str) -> Link | None:
        links: Sequence[Link] = self._launching.links
        return next((link for link in links if link.host == host and not self._late.is_sent_away(link)), None)

    def _end_as(self, end: End) -> None:
        self._launching.end(end, None if end.blamed is None else self._survived.get(end.blamed))
