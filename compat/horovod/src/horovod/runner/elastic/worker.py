"""`horovod.runner.elastic.worker`: how hosts have changed, as `State.on_hosts_updated` is told."""

from __future__ import annotations

from enum import IntFlag

__all__ = ["HostUpdateResult"]


class HostUpdateResult(IntFlag):
    """What happened to the hosts; both may have."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added
