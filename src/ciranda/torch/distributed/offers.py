"""Receiving from whoever sends.

The engine's transfers are between two ranks that name each other. So a rank that receives from any source says in the
group's store that it wants to hear of messages; from then on the others say there how many they have sent it. Nobody
looks into the store as long as its messages are taken: only who waits, while some of its messages are not.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import Counter
from typing import Any

#: How often who waits looks into the store: soon, then less and less.
_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 0.002, 0.05


def pause_seconds(n_looks: int) -> float:
    """How long to wait after the n-th look."""
    return min(_FIRST_PAUSE_SECONDS * 1.5 ** min(n_looks, 20), _LAST_PAUSE_SECONDS)


class Offers:
    """What a rank of a group has sent to the others and received from them, by tag; and who wants to hear of it."""

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
        """Note a message. Whoever is known to want to hears of it."""
        with self._lock:
            self._n_sent[destination, tag] += 1
            self._unsettled[destination, tag] = weakref.ref(work)
        if destination in self._wanting:
            self.make()

    def are_open(self) -> bool:
        """Whether somebody may wait for an offer of this rank."""
        return bool(self._unsettled)

    def make(self) -> None:
        """Offer what is not taken to those who want to hear of it."""
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
        """Say that this rank receives from any source."""
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
