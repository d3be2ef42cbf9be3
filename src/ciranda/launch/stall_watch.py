"""Where the ranks of a job stand: when some wait long for others, or when the user asks.

The engine's stall warnings, on the ranks' stderr, say for whom the others wait. Then the agents are asked for the
stacks of all ranks; what they say goes to the job's log and to the output folder, and the last lines of a job that ends
so are about it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ciranda.launch import protocol
from ciranda.launch.counter_reports import CounterReports
from ciranda.launch.failure import RankFailure, last_words
from ciranda.launch.job_log import JobLog
from ciranda.launch.link import Link
from ciranda.launch.output_dir import STACKS, STALL, OutputDir
from ciranda.launch.protocol import Message
from ciranda.launch.stack_reports import RankStack, StackReports
from ciranda.launch.stall_file import stall_of
from ciranda.launch.waits import StallWarnings, awaited

OLD_SECONDS = 600.0  # after this, where ranks stood does not explain an interruption


@dataclass(frozen=True)
class Watched:
    """What the launcher has for it.

    Attributes:
        links: to the agents that there are.
        host_of: the host of each rank; ranks may be added.
        counters: of all ranks.
        log: the job's.
        to_output_dir: has it written there; None without a folder.
    """

    links: Sequence[Link]
    host_of: Mapping[int, str]
    counters: CounterReports
    log: JobLog
    to_output_dir: Callable[[Callable[[OutputDir], None]], None] | None


class StallWatch:
    """Knows which ranks others wait for, and where all ranks stood when that was last so."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._warnings = {rank: StallWarnings() for rank in watched.host_of}
        self._stacks = StackReports(watched.host_of, self._keep_stack)
        self._waited_for: list[RankStack] = []  # the last stacks that were taken because others waited
        self._waited_at = 0.0

    @property
    def deadline(self) -> float | None:
        """When to call expire() again, of time.monotonic(); None if no stacks are awaited."""
        return self._stacks.deadline

    def add(self, rank: int) -> None:
        """Watch another rank, too."""
        self._warnings[rank] = StallWarnings()

    def feed(self, rank: int, stderr: bytes) -> set[int]:
        """Take a piece of a rank's stderr; return the ranks that are waited for, as its warnings say."""
        return self._warnings[rank].feed(stderr)

    def last_warning(self, rank: int) -> str:
        """Return the last warning of the rank's engine, of any kind; "" if there was none."""
        return self._warnings[rank].last

    def look(self, ranks: set[int], then: Callable[[Sequence[RankStack]], None]) -> None:
        """Others have waited long for these ranks: find where all stand, and keep it; then call ``then`` with theirs.

        ``then`` is called after the agents have answered, or when they take too long.
        """
        self._stacks.ask(self._watched.links, lambda stacks: then(self._on_where(ranks, stacks)))

    def ask(self, then: Callable[[Sequence[RankStack]], None]) -> None:
        """Call ``then`` with where all ranks stand, for somebody who wants to know."""
        self._stacks.ask(self._watched.links, then)

    def take(self, rank: int, message: Message) -> None:
        """Take where a rank stands; ProtocolError if the message does not say."""
        text = protocol.raw_of(message).decode("utf-8", "replace")
        self._stacks.take(rank, protocol.text_of(message, "where"), text)

    def end_of(self, link: Link) -> None:
        """The agent has sent the stacks of all of its ranks, or has gone."""
        self._stacks.end_of(link)

    def expire(self) -> None:
        """Continue with the stacks that have arrived, if the deadline has passed."""
        self._stacks.expire()

    def last_lines(self, failure: RankFailure | None, is_interrupted: bool) -> list[str]:
        """The last lines of a job that ended because, or while, ranks were waited for."""
        age = time.monotonic() - self._waited_at
        if failure is not None and awaited(last_words(failure.stderr_tail)):
            when = ""
        elif is_interrupted and age < OLD_SECONDS:
            when = f"{age:.0f} s ago "
        else:
            return []
        return [f"ciranda: {when}others waited for {stack}" for stack in self._waited_for]

    def _on_where(self, ranks: set[int], stacks: Sequence[RankStack]) -> list[RankStack]:
        self._waited_for = [stack for stack in stacks if stack.rank in ranks]
        self._waited_at = time.monotonic()
        watched = self._watched
        for stack in self._waited_for:
            watched.log.write("stall", rank=stack.rank, host=stack.host, where=stack.where)
        if watched.to_output_dir is not None:
            watched.counters.ask(watched.links, lambda counters: self._keep_stalls(ranks, stacks, counters))
        return self._waited_for

    def _keep_stalls(self, ranks: set[int], stacks: Sequence[RankStack], counters: Sequence[dict[str, Any]]) -> None:
        by_number = {each["rank"]: each for each in counters}

        def write(files: OutputDir) -> None:
            for stack in stacks:
                calls = self._warnings[stack.rank].calls.at(time.monotonic())
                files.replace(stack.rank, STALL, stall_of(stack, ranks, calls, by_number.get(stack.rank, {})))

        self._keep(write)

    def _keep_stack(self, stack: RankStack) -> None:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        text = f"# {when} {stack}\n{stack.text}\n"
        self._keep(lambda files: files.write(stack.rank, STACKS, text.encode("utf-8", "replace")))

    def _keep(self, write: Callable[[OutputDir], None]) -> None:
        if self._watched.to_output_dir is not None:
            self._watched.to_output_dir(write)
