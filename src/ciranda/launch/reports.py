"""What all agents say of their ranks when asked once: collected, and handed to whoever wanted it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from ciranda.launch.link import Link

T = TypeVar("T")


class Reports(Generic[T]):
    """One request to the agents at a time; what is asked meanwhile gets the same answer.

    Attributes:
        deadline: when to call expire(); None if nothing is awaited.
    """

    def __init__(self, kind: str, answer_seconds: float) -> None:
        """``kind``: of the message that asks for them; ``answer_seconds``: for all agents to answer."""
        self._kind = kind
        self._answer_seconds = answer_seconds
        self._awaited: list[Link] = []
        self._found: dict[int, T] = {}
        self._callers: list[Callable[[Sequence[T]], None]] = []
        self.deadline: float | None = None

    def ask(self, links: Iterable[Link], then: Callable[[Sequence[T]], None]) -> None:
        """Ask these agents, unless they have ended, and call ``then`` with all that has come, in the order of ranks.

        That is once all have answered, or long enough afterwards.
        """
        self._callers.append(then)
        if self._awaited:
            return
        self._found.clear()
        self._awaited = [link for link in links if link.done_reason is None]
        self.deadline = time.monotonic() + self._answer_seconds
        for link in self._awaited:
            link.send({"t": self._kind})
        self._answer_if_complete()

    def add(self, rank: int, found: T) -> None:
        """Take what has come of one rank."""
        self._found[rank] = found

    def end_of(self, link: Link) -> None:
        """The agent has sent all of its ranks', or has gone."""
        if link in self._awaited:
            self._awaited.remove(link)
            self._answer_if_complete()

    def expire(self) -> None:
        """Answer with what has come, if it is time."""
        if self.deadline is not None and time.monotonic() >= self.deadline:
            self._awaited.clear()
            self._answer_if_complete()

    def _answer_if_complete(self) -> None:
        if self._awaited:
            return
        self.deadline = None
        callers, self._callers = self._callers, []
        for then in callers:
            then([self._found[rank] for rank in sorted(self._found)])
