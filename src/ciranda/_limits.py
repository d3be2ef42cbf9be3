"""What large allreduces of two ranks can reach at most, by the costs that ``ciranda tune`` has measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping

_FS = 1e15  # in a second


def in_shared_memory(costs: Mapping[str, int]) -> float:
    """In bytes a second: each byte is copied one and a half times, and combined once."""
    return _FS / (1.5 * costs["copy_fs"] + costs["reduce_fs"])


def between_hosts(costs: Mapping[str, int]) -> float:
    """In bytes a second: each byte crosses the link, and is combined once."""
    return _FS / (costs["link_fs"] + costs["reduce_fs"])
