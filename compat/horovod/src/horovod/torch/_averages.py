"""What averages, by Horovod's rules: while ranks have joined, an average still divides by the number of all ranks.

These are Ciranda's functions with another default for `divisor`, whose names are in use until they were waited for.
Calls that are no averages have no divisor. An optimizer whose ranks begin with different parameters warns.
"""

from __future__ import annotations

from types import FunctionType, MethodType
from typing import Any, cast

import ciranda.torch as base
from ciranda._frameworks.parameters import warning_only
from horovod.torch._names_in_use import holding_name


def _dividing_by_all(function: Any) -> Any:
    """Return a copy of `function`, which may be a bound method, with that default."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    with_default = names[len(names) - len(function.__defaults__) :]
    defaults = tuple(
        "world where averaged" if name == "divisor" else value
        for name, value in zip(with_default, function.__defaults__, strict=True)
    )
    copy = FunctionType(function.__code__, function.__globals__, function.__name__, defaults, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__doc__, copy.__annotations__, copy.__module__ = function.__doc__, function.__annotations__, __name__
    its_self = getattr(function, "__self__", None)
    return cast(Any, copy if its_self is None else MethodType(copy, its_self))


allreduce = holding_name(_dividing_by_all(base.allreduce))
allreduce_ = holding_name(_dividing_by_all(base.allreduce_))
allreduce_async = holding_name(_dividing_by_all(base.allreduce_async))
allreduce_async_ = holding_name(_dividing_by_all(base.allreduce_async_))
grouped_allreduce = holding_name(_dividing_by_all(base.grouped_allreduce))
grouped_allreduce_ = holding_name(_dividing_by_all(base.grouped_allreduce_))
grouped_allreduce_async = holding_name(_dividing_by_all(base.grouped_allreduce_async))
grouped_allreduce_async_ = holding_name(_dividing_by_all(base.grouped_allreduce_async_))
sparse_allreduce_async = holding_name(_dividing_by_all(base.sparse_allreduce_async))
DistributedOptimizer = warning_only()(_dividing_by_all(base.DistributedOptimizer))
