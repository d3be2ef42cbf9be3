"""Collectives inside of what `torch.compile` has compiled: a graph ends before each, which runs as it is.

A call of the engine is nothing that a graph could hold, and what surrounds it (names, numbers, the world) changes
from call to call. `torch.compiler.disable()` says so, too, but costs each call half a microsecond, and every import a
second: it imports the compiler. So the two marks that it leaves are made here. Where a version of torch has no such
marks, nothing is done.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import FunctionType
from typing import Any

from torch._C import _dynamo

_WHY = "collectives run outside of compiled graphs"


def leave_uncompiled(functions: Iterable[Any]) -> None:
    """Have compiled programs call what is among `functions` a function or a bound method as it is."""
    mark = getattr(_dynamo.eval_frame, "set_code_exec_strategy", None)
    if mark is None:
        return
    skip = _dynamo.eval_frame._FrameAction.SKIP
    # Neither it nor what it calls.
    strategy = _dynamo.eval_frame._FrameExecStrategy(skip, skip)
    for given in functions:
        function = getattr(given, "__func__", given)
        if isinstance(function, FunctionType):
            function._torchdynamo_disable = True  # type: ignore[attr-defined]
            function._torchdynamo_disable_msg = _WHY  # type: ignore[attr-defined]
            mark(function.__code__, strategy)
