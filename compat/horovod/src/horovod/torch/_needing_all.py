"""What fails while ranks have joined, as in Horovod: everything but allreduce. Ciranda's own functions go on.

These are Ciranda's functions, with the process set asked to be complete.
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import Any

import ciranda.torch as circle


def _needing_all(function: Any) -> Any:
    """Return `function` for process sets of which no rank has joined."""
    position = list(inspect.signature(function).parameters).index("process_set")

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > position:
            args = (*args[:position], args[position].needing_all(), *args[position + 1 :])
        else:
            kwargs["process_set"] = kwargs.get("process_set", circle.global_process_set).needing_all()
        return function(*args, **kwargs)

    call.__module__ = __name__
    return call


allgather = _needing_all(circle.allgather)
allgather_async = _needing_all(circle.allgather_async)
grouped_allgather = _needing_all(circle.grouped_allgather)
grouped_allgather_async = _needing_all(circle.grouped_allgather_async)
broadcast = _needing_all(circle.broadcast)
broadcast_ = _needing_all(circle.broadcast_)
broadcast_async = _needing_all(circle.broadcast_async)
broadcast_async_ = _needing_all(circle.broadcast_async_)
alltoall = _needing_all(circle.alltoall)
alltoall_async = _needing_all(circle.alltoall_async)
reducescatter = _needing_all(circle.reducescatter)
reducescatter_async = _needing_all(circle.reducescatter_async)
grouped_reducescatter = _needing_all(circle.grouped_reducescatter)
grouped_reducescatter_async = _needing_all(circle.grouped_reducescatter_async)
