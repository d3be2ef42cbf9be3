"""Agents that come while an elastic job runs, and go when their hosts are not offered any more.

An agent has its first ranks from the orders that follow its hello; later ones it starts by single messages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping

from ciranda.launch.link import Link
from ciranda.launch.orders import OwnVariables
from ciranda.launch.protocol import Message


class LateHosts:
    """What is known of the links of a running job.

    Args:
        start_timeout_seconds: for an agent to answer.
        order: sends an agent its orders, with its first ranks.

    Attributes:
        deadline: when to call on_time() at the latest.
    """

    def __init__(self, start_timeout_seconds: float, order: Callable[[Link, OwnVariables], None]) -> None:
        self._start_timeout_seconds = start_timeout_seconds
        self._order = order
        self._first: dict[Link, dict[int, Mapping[str, str]]] = {}  # the ranks of those that have not greeted
        self._greet_by: dict[Link, float] = {}
        self._sent_away: set[Link] = set()

    @property
    def deadline(self) -> float | None:
        """None if no answer is awaited."""
        return min(self._greet_by.values(), default=None)

    def expect(self, link: Link) -> None:
        """An agent has just been started."""
        self._first[link] = {}
        self._greet_by[link] = time.monotonic() + self._start_timeout_seconds

    def start(self, link: Link, rank: int, own: Mapping[str, str]) -> None:
        """Start a rank, with these variables of its own."""
        if link in self._first:
            self._first[link][rank] = own
        else:
            link.send_next({"t": "restart", "rank": rank, "env": dict(own)})

    def send(self, link: Link, rank: int, message: Message) -> bool:
        """Send the agent what concerns a rank; False if the agent does not know that rank yet, and never will."""
        if link in self._first:
            self._first[link].pop(rank, None)
            return False
        link.send_next(message)
        return True

    def on_hello(self, link: Link) -> None:
        """The agent has answered."""
        self._greet_by.pop(link, None)
        ranks = self._first.pop(link, {})
        if ranks:
            self._order(link, ranks)
        else:
            self._sent_away.add(link)
            link.kill()

    def on_time(self) -> None:
        """Give up agents that have not answered in time; their ends follow."""
        for link in [link for link, due in self._greet_by.items() if time.monotonic() >= due]:
            del self._greet_by[link]
            link.kill()

    def send_away(self, links: Iterable[Link], hosts_in_use: Collection[str], grace_seconds: float) -> None:
        """End the agents of other hosts."""
        for link in links:
            if link.host not in hosts_in_use and link.done_reason is None and link not in self._sent_away:
                self._sent_away.add(link)
                if link in self._first:
                    link.kill()
                else:
                    link.send_end(grace_seconds)

    def is_sent_away(self, link: Link) -> bool:
        """Whether its end is no loss."""
        return link in self._sent_away
