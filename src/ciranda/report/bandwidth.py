"""Whether bandwidth is what a job's calls take their time for: only then fewer bytes take less of it. Pure.

A small call takes as long as its messages need to arrive, however few bytes they have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ciranda import _limits

_LEAST_BYTES = 64 << 10  # of a call; of smaller ones, latency is the most
_MOST = 0.5  # of the time of its calls that the limit must explain

Facts = Mapping[str, Any]


def share_of_bandwidth(facts: Facts) -> float:
    """The share of the time in which calls move data that calls take for their bytes, by the sizes counted."""
    rows = [row for row in facts["sizes"] or facts["collectives"] if row["move_seconds"] > 0 and row["calls"] > 0]
    seconds = sum(row["move_seconds"] for row in rows)
    limit = _limit(facts, rows)
    bound = (row["move_seconds"] for row in rows if _is_bound(row, limit))
    return sum(bound) / seconds if seconds > 0 else 0.0


def _is_bound(row: Facts, limit: float) -> bool:
    is_large = row["bytes"] / row["calls"] >= _LEAST_BYTES
    return bool(is_large and row["bytes"] / limit >= _MOST * row["move_seconds"])


def _limit(facts: Facts, rows: Sequence[Facts]) -> float:
    """In bytes a second: what the ranks of this job can reach on this machine, if it was measured; else the best seen.

    Two ranks of a host share its memory as more do; a ring sends each byte nearly twice between many hosts.
    """
    costs, hosts = facts["job"]["costs"], facts["job"]["hosts"]
    if not costs:
        return max((row["bytes"] / row["move_seconds"] for row in rows), default=1.0)
    if len(hosts) > 1:
        return _limits.between_hosts(costs) * len(hosts) / (2 * (len(hosts) - 1))
    return _limits.in_shared_memory(costs) * 2 / max(2, len(hosts[0]["ranks"]))
