"""`horovod.runner.elastic.settings`: the arguments of an elastic job as an object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horovod.runner.common.util.settings import BaseSettings
from horovod.runner.elastic.discovery import HostDiscovery

__all__ = ["ElasticSettings"]


class ElasticSettings(BaseSettings):
    """What is asked for. Only a record, as its base."""

    def __init__(
        self,
        discovery: HostDiscovery | None,
        min_num_proc: int | None,
        max_num_proc: int | None,
        elastic_timeout: int | None,
        reset_limit: int | None,
        cooldown_range: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(elastic=True, **kwargs)
        self.discovery = discovery
        self.min_num_proc = min_num_proc
        self.max_num_proc = max_num_proc
        self.elastic_timeout = elastic_timeout
        self.reset_limit = reset_limit
        self.cooldown_range = cooldown_range
