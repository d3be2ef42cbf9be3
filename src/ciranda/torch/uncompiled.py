"""Collectives inside of what `torch.compile` has compiled: a graph ends before each, which runs as it is.

A call of the engine is nothing that a graph could hold, and what surrounds it (names, numbers, the world) changes
from call to call. `torch.compiler.disable()` says so, too, but costs each call half a microsecond, and every import a
second: it imports the compiler. So the two marks that it leaves are made here. Where a version of torch has no such
marks, leave_uncompiled() does nothing, and uncompiled() what costs more.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

import torch
from torch._C import _dynamo

_WHY = "collectives run outside of compiled graphs"
_COMPILER = "torch._dynamo"
_HAS_MARKS = hasattr(_dynamo.eval_frame, "set_code_exec_strategy")


def leave_uncompiled(functions: Iterable[Any]) -> None:
    """Have compiled programs call what is among `functions` a function or a bound method as it is."""
    if not _HAS_MARKS:
        return
    skip = _dynamo.eval_frame._FrameAction.SKIP
    # Neither it nor what it calls.
    strategy = _dynamo.eval_frame._FrameExecStrategy(skip, skip)
    for given in functions:
        function = getattr(given, "__func__", given)
        if isinstance(function, FunctionType):
            function._torchdynamo_disable = True  # type: ignore[attr-defined]
            function._torchdynamo_disable_msg = _WHY  # type: ignore[attr-defined]
            _dynamo.eval_frame.set_code_exec_strategy(function.__code__, strategy)


def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function for compiled programs to call as it is: without marks, disabled once there is a compiler."""
    leave_uncompiled([function])
    if _HAS_MARKS:
        return function
    disabled: Callable[..., Any] | None = None

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        nonlocal disabled
        if _COMPILER not in sys.modules:
            return function(*arguments, **named)
        if disabled is None:
            disabled = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
        return disabled(*arguments, **named)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call
