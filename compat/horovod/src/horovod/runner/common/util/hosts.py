"""`horovod.runner.common.util.hosts`: hosts, slots, and which rank goes where; by Ciranda's own rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ciranda.launch import hosts as of_ciranda

__all__ = [
    "HostInfo",
    "SlotInfo",
    "get_host_assignments",
    "parse_host_files",
    "parse_hosts",
    "parse_hosts_and_slots",
]


@dataclass
class HostInfo:
    """A host, and how many ranks it takes."""

    hostname: str
    slots: int

    @staticmethod
    def from_string(host_string: str) -> HostInfo:
        """From `host:slots`; a host without a number has one. Raises HostsError, a ValueError."""
        (host,) = parse_hosts(host_string)
        return host


@dataclass
class SlotInfo:
    """The place of one rank."""

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: int | None = None
    local_size: int | None = None
    cross_size: int | None = None

    def to_response_string(self) -> str:
        """Rank, size, local rank, local size, cross rank and cross size, with commas between."""
        numbers = (self.rank, self.size, self.local_rank, self.local_size, self.cross_rank, self.cross_size)
        return ",".join(map(str, numbers))


def parse_hosts(hosts_string: str) -> list[HostInfo]:
    """The hosts of `hostA:2,hostB:2`. Raises HostsError, a ValueError."""
    return [HostInfo(host.name, host.slots) for host in of_ciranda.parse_hosts(hosts_string)]


def parse_hosts_and_slots(hosts: str) -> tuple[list[str], dict[str, int]]:
    """The names of the hosts in `hostA:2,hostB:2`, and the slots of each. Raises HostsError, a ValueError."""
    parsed = parse_hosts(hosts)
    return [host.hostname for host in parsed], {host.hostname: host.slots for host in parsed}


def parse_host_files(filename: str) -> str:
    """The hosts of a file with lines `host slots=N`, as `hostA:2,hostB:2`. Raises HostsError, a ValueError; OSError."""
    hosts = of_ciranda.parse_hostfile(Path(filename).read_text(encoding="utf-8"), filename)
    return ",".join(f"{host.name}:{host.slots}" for host in hosts)


def get_host_assignments(
    hosts: Sequence[HostInfo], min_num_proc: int, max_num_proc: int | None = None
) -> list[SlotInfo]:
    """Give ranks to the slots of the hosts in order: as many as there are slots, `max_num_proc` at most.

    Raises:
        HostsError: (a ValueError) there are fewer than `min_num_proc` slots.
    """
    given = [of_ciranda.Host(host.hostname, host.slots) for host in hosts]
    n_slots = sum(host.slots for host in hosts)
    n_ranks = max(min_num_proc, n_slots if max_num_proc is None else min(n_slots, max_num_proc))
    return [
        SlotInfo(slot.host, slot.rank, slot.local_rank, slot.cross_rank, slot.size, slot.local_size, slot.cross_size)
        for slot in of_ciranda.assign(given, n_ranks)
    ]
