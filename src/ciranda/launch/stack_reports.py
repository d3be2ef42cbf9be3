"""Where ranks stand, as the launcher learns it from the agents: when others wait for some, or when somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ciranda.launch.link import Link
from ciranda.launch.reports import Reports

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


class StackReports(Reports[RankStack]):
    """The stacks of all ranks that run."""

    def __init__(self, host_of: Mapping[int, str], on_stack: Callable[[RankStack], None]) -> None:
        """``on_stack`` gets each rank's as it comes."""
        super().__init__("stacks", ANSWER_SECONDS)
        self._host_of = host_of
        self._on_stack = on_stack

    def ask(self, links: Iterable[Link], then: Callable[[Sequence[RankStack]], None]) -> None:
        """As Reports, of the agents that run ranks."""
        super().ask([link for link in links if link.running], then)

    def take(self, rank: int, where: str, text: str) -> None:
        """Take one rank's."""
        stack = RankStack(rank, self._host_of[rank], where, text)
        self.add(rank, stack)
        self._on_stack(stack)
