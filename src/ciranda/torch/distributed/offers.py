"""Receiving from any source.

The engine's transfers are between two ranks that name each other. So a rank that receives from any source requests
offers in the group's store; from then on the others put there how many messages they have sent to it. A rank reads the
store only while it waits and some of its messages have not been received.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import Counter
from typing import Any

#: The times between reads of the store by a waiting rank: short at first, then longer.
_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 0.002, 0.05


def pause_seconds(n_looks: int) -> float:
    """The time to wait after the n-th read of the store."""
    return min(_FIRST_PAUSE_SECONDS * 1.5 ** min(n_looks, 20), _LAST_PAUSE_SECONDS)


class Offers:
    """The messages that a rank of a group has sent and received, by tag; and the ranks that request offers."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._store = store
        self._rank = rank
        self._others = [other for other in range(size) if other != rank]
        self._lock = threading.Lock()
        self._n_sent: Counter[tuple[int, int]] = Counter()
        self._n_received: Counter[tuple[int, int]] = Counter()
        self._unsettled: dict[tuple[int, int], weakref.ref[Any]] = {}  # the last of those that may not be taken
        self._wanting: set[int] = set()
        self._next_first = itertools.count()

    # --- who sends

    def sent(self, destination: int, tag: int, work: Any) -> None:
        """Note a message, and offer it to ranks that are known to request offers."""
        with self._lock:
            self._n_sent[destination, tag] += 1
            self._unsettled[destination, tag] = weakref.ref(work)
        if destination in self._wanting:
            self.make()

    def are_open(self) -> bool:
        """Whether another rank may wait for an offer of this rank."""
        return bool(self._unsettled)

    def make(self) -> None:
        """Offer the unreceived messages to ranks that request offers."""
        with self._lock:
            for (destination, tag), last in list(self._unsettled.items()):
                work = last()
                if work is not None and work.is_completed():
                    del self._unsettled[destination, tag]  # and so are those before
                elif self._is_wanted_by(destination):
                    self._store.set(self._key(self._rank, destination, tag), str(self._n_sent[destination, tag]))
                    del self._unsettled[destination, tag]

    def _is_wanted_by(self, destination: int) -> bool:
        if destination not in self._wanting and self._store.check([f"ciranda/wanted/{destination}"]):
            self._wanting.add(destination)
        return destination in self._wanting

    # --- who receives

    def received(self, source: int, tag: int) -> None:
        """Note that a message is being received."""
        with self._lock:
            self._n_received[source, tag] += 1

    def want(self) -> None:
        """Request offers: this rank receives from any source."""
        self._store.set(f"ciranda/wanted/{self._rank}", "1")

    def find(self, tag: int) -> int | None:
        """Return a rank that has sent a message which is not being received, if there is one; each in its turn."""
        first = next(self._next_first)
        for index in range(len(self._others)):
            source = self._others[(first + index) % len(self._others)]
            key = self._key(source, self._rank, tag)
            if self._store.check([key]) and int(self._store.get(key)) > self._n_received[source, tag]:
                return source
        return None

    @staticmethod
    def _key(source: int, destination: int, tag: int) -> str:
        return f"ciranda/sent/{source}/{destination}/{tag}"
