"""What averages, by Horovod's rule: while ranks have joined, an average still divides by the number of all ranks.

These are Ciranda's functions with another default for `divisor`. Calls that are no averages have no divisor.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any, cast

import ciranda.torch as circle


def _dividing_by_all(function: Any) -> Any:
    """Return a copy of `function` with that default."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    with_default = names[len(names) - len(function.__defaults__) :]
    defaults = tuple(
        "world where averaged" if name == "divisor" else value
        for name, value in zip(with_default, function.__defaults__, strict=True)
    )
    copy = FunctionType(function.__code__, function.__globals__, function.__name__, defaults, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__doc__, copy.__annotations__, copy.__module__ = function.__doc__, function.__annotations__, __name__
    return cast(Any, copy)


allreduce = _dividing_by_all(circle.allreduce)
allreduce_ = _dividing_by_all(circle.allreduce_)
allreduce_async = _dividing_by_all(circle.allreduce_async)
allreduce_async_ = _dividing_by_all(circle.allreduce_async_)
grouped_allreduce = _dividing_by_all(circle.grouped_allreduce)
grouped_allreduce_ = _dividing_by_all(circle.grouped_allreduce_)
grouped_allreduce_async = _dividing_by_all(circle.grouped_allreduce_async)
grouped_allreduce_async_ = _dividing_by_all(circle.grouped_allreduce_async_)
sparse_allreduce_async = _dividing_by_all(circle.sparse_allreduce_async)
DistributedOptimizer = _dividing_by_all(circle.DistributedOptimizer)
