"""What interrupts elastic training so that ranks can join or leave."""

from __future__ import annotations


class HostsUpdatedInterrupt(RuntimeError):  # noqa: N818 (Horovod's name)
    """The hosts of the job have changed. `skip_sync`: only removals, so that the state needs no broadcast."""

    def __init__(self, skip_sync: bool) -> None:
        super().__init__()
        self.skip_sync = skip_sync
