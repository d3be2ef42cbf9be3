"""Where ranks stand, as the launcher learns it from the agents: when others wait for some, or when somebody asks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ciranda.launch.link import Link

ANSWER_SECONDS = 8.0  # for all agents, one of which may use py-spy


@dataclass(frozen=True)
class RankStack:
    """Where one rank stands: in a line, and the stacks of all its threads."""

    rank: int
    host: str
    where: str
    text: str

    def __str__(self) -> str:
        """``rank 1 (hostB): load_batch, data.py:4``."""
        return f"rank {self.rank} ({self.host}): {self.where}"


#: Called with what has come, in the order of ranks, once all agents have answered, or long enough afterwards.
OnStacks = Callable[[Sequence[RankStack]], None]


class StackReports:
    """One request to the agents at a time; what is asked meanwhile gets the same answer.

    Attributes:
        deadline: when to call expire(); None if nothing is awaited.
    """

    def __init__(self, host_of: Mapping[int, str], on_stack: Callable[[RankStack], None]) -> None:
        """``on_stack`` gets each rank's as it comes."""
        self._host_of = host_of
        self._on_stack = on_stack
        self._awaited: list[Link] = []
        self._stacks: dict[int, RankStack] = {}
        self._callers: list[OnStacks] = []
        self.deadline: float | None = None

    def ask(self, links: Iterable[Link], then: OnStacks) -> None:
        """Have the agents that run ranks take their stacks, and call ``then`` with all of them."""
        self._callers.append(then)
        if self._awaited:
            return
        self._stacks.clear()
        self._awaited = [link for link in links if link.running and link.done_reason is None]
        self.deadline = time.monotonic() + ANSWER_SECONDS
        for link in self._awaited:
            link.send({"t": "stacks"})
        self._answer_if_complete()

    def add(self, rank: int, where: str, text: str) -> None:
        """Take one rank's."""
        stack = self._stacks[rank] = RankStack(rank, self._host_of[rank], where, text)
        self._on_stack(stack)

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
            then([self._stacks[rank] for rank in sorted(self._stacks)])
