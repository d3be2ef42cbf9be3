"""Local and cross ranks, if no launcher gives them: numbered within hosts, and hosts among hosts."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Claim:
    """A rank's own data: its host and, if its launcher gives it, its number there."""

    host: str
    local_rank: int | None = None


@dataclass(frozen=True)
class LocalRanks:
    """A rank's local and cross rank, with their sizes, in the words of CIRANDA_LOCAL_RANK and its like."""

    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


def local_ranks(claims: Sequence[Claim]) -> list[LocalRanks]:
    """Number each rank. `claims` are in the order of ranks, hosts count in the order of their lowest ranks.

    Within a host, ranks go in the order of the numbers that they claim, then of ranks.
    """
    on_host: dict[str, list[int]] = {}
    for rank, claim in enumerate(claims):
        on_host.setdefault(claim.host, []).append(rank)
    for ranks in on_host.values():
        ranks.sort(key=lambda rank: (claims[rank].local_rank or 0, rank))
    of_rank: dict[int, LocalRanks] = {}
    sizes = [len(ranks) for ranks in on_host.values()]
    for index, ranks in enumerate(on_host.values()):
        for local_rank, rank in enumerate(ranks):
            cross_rank = sum(size > local_rank for size in sizes[:index])
            cross_size = sum(size > local_rank for size in sizes)
            of_rank[rank] = LocalRanks(local_rank, len(ranks), cross_rank, cross_size)
    return [of_rank[rank] for rank in range(len(claims))]


def host_id() -> str:
    """Return what tells this machine from all others."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{socket.gethostname()} {boot}"
