"""Agents that have connected by themselves, as those in Kubernetes' pods and in Spark's tasks: how they are reached."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ciranda.launch import silence
from ciranda.launch.channel import Channel
from ciranda.launch.hosts import Slot
from ciranda.launch.link import DialledLink


@dataclass(frozen=True)
class Dialled:
    """A way to reach them (reach.py).

    Attributes:
        first: the host that the launcher is on.
        channels: the agents' connections, by host.
        label: what the launcher is in.
        log: where an agent that has gone says why.
        are_on_one_machine: whether all hosts are names for parts of this machine.
    """

    first: str
    channels: Mapping[str, Channel]
    label: str
    log: str
    are_on_one_machine: bool = False

    def is_here(self, host: str) -> bool:
        """Whether the launcher is on it."""
        return host == self.first

    def link(self, host: str, slots: Sequence[Slot], _python: str, _python_path: str) -> DialledLink:
        """The agent that has come."""
        return DialledLink(host, slots, self.channels[host], silence.LATER_THAN_RANKS * silence.limit_of(os.environ))

    def resolved_name(self, host: str) -> tuple[str, bool]:
        """This machine, if all are on it; else by which of its addresses the others come is not known."""
        return ("localhost", True) if self.are_on_one_machine else (host, False)

    def explain(self, host: str, _exit_code: int, _stderr: str) -> str:
        """The agent has gone before it could start."""
        return f"{host} has gone before its ranks were started: {self.log} says why"
