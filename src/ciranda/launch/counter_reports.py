"""The counters of all ranks, as the launcher learns them from the agents when somebody asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ciranda.launch.errors import ProtocolError
from ciranda.launch.protocol import Message
from ciranda.launch.reports import Reports

ANSWER_SECONDS = 5.0  # for all agents


class CounterReports(Reports[dict[str, Any]]):
    """What `ciranda.launch.page.read_page` says of each rank, also of one that has ended, beside host and memory.

    ``kind`` is "counters", or "totals" without those of each collective, for who looks often.

    ``world_rank`` is its rank in its world, once it has joined one: another number in an elastic job, after a change.

    Attributes:
        last: by rank, what has come last, also without a question.
    """

    def __init__(self, kind: str, host_of: Mapping[int, str]) -> None:
        super().__init__(kind, ANSWER_SECONDS)
        self._host_of = host_of
        self.last: dict[int, dict[str, Any]] = {}

    def take(self, rank: int, message: Message, warning: str) -> None:
        """Take one rank's, and the last warning of its engine; ProtocolError if they are none."""
        counters = message.get("counters")
        if not isinstance(counters, dict):
            raise ProtocolError("counters: they must be an object")
        in_world = {"world_rank": counters["rank"]} if "rank" in counters else {}
        self.last[rank] = {**counters, **in_world, "rank": rank, "host": self._host_of[rank], "warning": warning}
        self.add(rank, self.last[rank])
