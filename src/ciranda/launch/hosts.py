"""Which rank runs on which host. Pure: text in, slots out, errors that say what to write instead.

Ranks fill the slots in the order in which the hosts are named. As in Horovod, ``local_rank`` counts within a host, and
``cross_rank`` is a host's index among the hosts that have that ``local_rank``. ``host_index`` is its index among all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ciranda.launch.errors import HostsError

MAX_SIZE = 65536
# A name, an IPv4 address, or user@name. Never a leading dash: ssh would read it as an option.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*\Z")
_IPV6 = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?\[(?P<address>[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?)\]\Z")


@dataclass(frozen=True)
class Host:
    """A host as the user named it, and how many ranks it can take."""

    name: str
    slots: int


@dataclass(frozen=True)
class Slot:
    """The place of one rank."""

    rank: int
    size: int
    host: str
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    host_index: int
    n_hosts: int


def parse_hosts(text: str) -> list[Host]:
    """Parse ``"hostA:2,hostB:2"``; a host without a count has one slot, IPv6 addresses stand in brackets.

    Raises:
        HostsError: an empty entry, a bad name, a slot count that is not a positive number, a host named twice.
    """
    entries = [entry.strip() for entry in text.split(",")]
    if not any(entries):
        raise HostsError("-H names no host: write for example -H hostA:2,hostB:2")
    hosts = []
    for entry in entries:
        if not entry:
            raise HostsError(f"-H has an empty entry in {text!r}: remove the extra comma")
        name, count = _split_count(entry)
        hosts.append(Host(_checked_name(name, entry), _checked_slots(count, entry)))
    return _without_twins(hosts, "-H")


def parse_hostfile(text: str, source: str = "hostfile") -> list[Host]:
    """Parse lines ``host slots=N`` (``host`` and ``host:N`` also do); ``#`` starts a comment.

    Raises:
        HostsError: names ``source`` and the line.
    """
    hosts = []
    for number, raw in enumerate(text.splitlines(), start=1):
        words = raw.split("#", 1)[0].split()
        if not words:
            continue
        where = f"{source}, line {number}: {raw.strip()!r}"
        name, count = _split_count(words[0])
        for word in words[1:]:
            key, _, value = word.partition("=")
            if key == "slots" and value:
                count = value
            elif key != "max_slots" and key != "max-slots":
                raise HostsError(f"{where}: {word!r} is not understood: write host slots=N")
        hosts.append(Host(_checked_name(name, where), _checked_slots(count, where)))
    if not hosts:
        raise HostsError(f"{source} names no host: write one 'host slots=N' a line")
    return _without_twins(hosts, source)


def checked_size(np: int) -> int:
    """``np`` itself if a job can have that many ranks, else HostsError."""
    if np < 1:
        raise HostsError(f"-np {np}: the number of processes must be 1 or more")
    if np > MAX_SIZE:
        raise HostsError(f"-np {np}: a job can have at most {MAX_SIZE} processes")
    return np


def assign(hosts: Sequence[Host], np: int | None = None) -> list[Slot]:
    """Give ranks 0..np-1 to the slots of ``hosts`` in order; ``np`` None means every slot.

    Raises:
        HostsError: ``np`` is less than 1 or more than there are slots.
    """
    available = sum(host.slots for host in hosts)
    size = checked_size(available if np is None else np)
    if size > available:
        listed = ", ".join(f"{host.name}:{host.slots}" for host in hosts)
        raise HostsError(
            f"-np {size} is more than the {available} slot{'s' * (available != 1)} of {listed}: "
            f"lower -np, or give the hosts more slots"
        )
    filled = zip(hosts, _filled(hosts, size), strict=True)
    return positions([host.name for host, n_ranks in filled for _ in range(n_ranks)])


def positions(host_of_rank: Sequence[str]) -> list[Slot]:
    """The numbers of each rank, from the hosts of all ranks. REQUIRES: the ranks of a host follow one another."""
    local_sizes = Counter(host_of_rank)
    slots: list[Slot] = []
    for index, (host, local_size) in enumerate(local_sizes.items()):
        before = list(local_sizes.values())[:index]
        for local_rank in range(local_size):
            cross_rank = sum(other > local_rank for other in before)
            cross_size = sum(other > local_rank for other in local_sizes.values())
            within = (local_rank, local_size, cross_rank, cross_size)
            slots.append(Slot(len(slots), len(host_of_rank), host, *within, index, len(local_sizes)))
    return slots


def by_host(slots: Iterable[Slot]) -> dict[str, list[Slot]]:
    """The slots of each host that has any, hosts in order."""
    grouped: dict[str, list[Slot]] = {}
    for slot in slots:
        grouped.setdefault(slot.host, []).append(slot)
    return grouped


def _filled(hosts: Sequence[Host], size: int) -> list[int]:
    taken: list[int] = []
    for host in hosts:
        taken.append(min(host.slots, size - sum(taken)))
    return taken


def _split_count(entry: str) -> tuple[str, str]:
    """Cut ``name[:count]``; colons inside brackets belong to the name."""
    bracket = entry.rfind("]")
    colon = entry.find(":", bracket + 1)
    if colon < 0:
        return entry, "1"
    if bracket < 0 and entry.count(":") > 1:
        raise HostsError(f"{entry!r} has more than one colon: write an IPv6 address in brackets, as in [fd00::1]:2")
    return entry[:colon], entry[colon + 1 :]


def _checked_name(name: str, where: str) -> str:
    if not _NAME.match(name) and not _IPV6.match(name):
        shown = f" in {where!r}" if where != name else ""
        raise HostsError(f"{name!r}{shown} is not a host name or address: write for example hostA:2")
    return name.replace("[", "").replace("]", "")


def _checked_slots(count: str, where: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", count) or int(count) == 0:
        raise HostsError(f"{where!r}: the slots must be a number of 1 or more, not {count!r}")
    return checked_size(int(count))


def _without_twins(hosts: list[Host], source: str) -> list[Host]:
    seen: set[str] = set()
    for host in hosts:
        if host.name in seen:
            raise HostsError(f"{source} names {host.name} twice: name it once, with all of its slots")
        seen.add(host.name)
    return hosts
