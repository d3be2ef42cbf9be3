"""What fails as in Horovod: while ranks have joined, everything but allreduce; and reducescatter with op=Adasum.

These are Ciranda's functions, which go on while ranks have joined, with the process set asked to be complete, and with
names that are in use until they were waited for. To them a reduction that there is not is a wrong argument; scripts for
Horovod catch a failed collective.
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import Any

import ciranda.torch as base
from horovod.torch._names_in_use import holding_name


def _needing_all(function: Any) -> Any:
    """Return `function` for process sets of which no rank has joined."""
    position = list(inspect.signature(function).parameters).index("process_set")

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > position:
            args = (*args[:position], args[position].needing_all(), *args[position + 1 :])
        else:
            kwargs["process_set"] = kwargs.get("process_set", base.global_process_set).needing_all()
        return function(*args, **kwargs)

    call.__module__ = __name__
    return call


def _refusing_adasum(function: Any) -> Any:
    """Return `function`, which raises HorovodInternalError (a RuntimeError) for op=Adasum."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if signature.bind(*args, **kwargs).arguments.get("op") == base.Adasum:
            raise base.HorovodInternalError(f"{function.__name__}: op=Adasum is one of allreduce only")
        return function(*args, **kwargs)

    return call


allgather = holding_name(_needing_all(base.allgather))
allgather_async = holding_name(_needing_all(base.allgather_async))
grouped_allgather = holding_name(_needing_all(base.grouped_allgather))
grouped_allgather_async = holding_name(_needing_all(base.grouped_allgather_async))
broadcast = holding_name(_needing_all(base.broadcast))
broadcast_ = holding_name(_needing_all(base.broadcast_))
broadcast_async = holding_name(_needing_all(base.broadcast_async))
broadcast_async_ = holding_name(_needing_all(base.broadcast_async_))
alltoall = holding_name(_needing_all(base.alltoall))
alltoall_async = holding_name(_needing_all(base.alltoall_async))
reducescatter = holding_name(_refusing_adasum(_needing_all(base.reducescatter)))
reducescatter_async = holding_name(_refusing_adasum(_needing_all(base.reducescatter_async)))
grouped_reducescatter = holding_name(_refusing_adasum(_needing_all(base.grouped_reducescatter)))
grouped_reducescatter_async = holding_name(_refusing_adasum(_needing_all(base.grouped_reducescatter_async)))
