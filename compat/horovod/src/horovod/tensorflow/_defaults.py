"""What has other defaults in Horovod: averages, optimizers, and collectives while ranks have joined.

Optimizers and tapes whose ranks begin with different variables warn.
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import Any

import ciranda.tensorflow as base
from ciranda._frameworks.parameters import warning_only
from ciranda.errors import InvalidArgumentError


def _with_defaults(function: Any, **defaults: Any) -> Any:
    """Return `function` with other values for arguments that Horovod's has not."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{**defaults, **kwargs})

    call.__module__ = __name__
    return call


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


def _of_any(function: Any) -> Any:
    """Return `function` of a list of tensors that may be empty, as Horovod's, which then returns it."""

    @wraps(function)
    def call(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        return function(tensors, *args, **kwargs) if len(tensors) else tensors

    call.__module__ = __name__
    return call


_AVERAGES = {"divisor": "world where averaged"}
_GRADIENTS = {"divisor": "world"}

allreduce = _with_defaults(base.allreduce, **_AVERAGES)
grouped_allreduce = _of_any(_with_defaults(base.grouped_allreduce, **_AVERAGES))
allgather = _needing_all(base.allgather)
grouped_allgather = _needing_all(base.grouped_allgather)
broadcast = _needing_all(base.broadcast)
broadcast_ = _needing_all(base.broadcast_)
alltoall = _needing_all(base.alltoall)
reducescatter = _needing_all(base.reducescatter)
grouped_reducescatter = _of_any(_needing_all(base.grouped_reducescatter))
DistributedGradientTape = warning_only()(_with_defaults(base.DistributedGradientTape, **_GRADIENTS))
PartialDistributedGradientTape = warning_only()(_with_defaults(base.PartialDistributedGradientTape, **_GRADIENTS))


@warning_only()
def DistributedOptimizer(optimizer: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N802 (Horovod's name)
    """`ciranda.tensorflow.DistributedOptimizer`; of Keras 2, only gradients that it computes itself are combined.

    Scripts combine others with DistributedGradientTape before they apply them.
    """
    bound = inspect.signature(base.DistributedOptimizer).bind(optimizer, *args, **kwargs).arguments
    if bound.get("op") == base.Adasum and bound.get("average_aggregated_gradients"):
        raise InvalidArgumentError("op=Adasum cannot be used with average_aggregated_gradients=True")
    return base.DistributedOptimizer(optimizer, *args, **{"combine_when": "compute", **_GRADIENTS, **kwargs})
