"""The spans in torch.profiler of calls (see `ciranda._spans`), and of what an optimizer does."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.autograd.profiler

from ciranda import _basics

_autograd: Any = torch.autograd
_profiler: Any = torch.autograd.profiler
_record_fast: Any = getattr(torch._C._profiler, "_RecordFunctionFast", None)  # since torch 2.2


def make_span(name: str, tensors: list[Any], attributes: Mapping[str, Any]) -> AbstractContextManager[Any]:
    """Return a span that shows the attributes, if the profile has shapes."""
    _name_rank()
    context: AbstractContextManager[Any]
    if _record_fast is None:
        context = _profiler.record_function(name)
    else:
        context = _record_fast(name, [each for each in tensors if isinstance(each, torch.Tensor)], dict(attributes))
    return context


def _name_rank() -> None:
    """Put into the profile which rank it is of, as torch.profiler does where torch.distributed is in use.

    Holistic Trace Analysis takes all files for rank 0's without it. It costs a microsecond.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        told = f'{{"rank": {_basics.rank()}, "world_size": {_basics.size()}}}'
        _autograd._add_metadata_json("distributedInfo", told)


def part(name: str) -> AbstractContextManager[Any]:
    """Record what is done within it, if a profile is under way."""
    if not _profiler._is_profiler_enabled:
        return nullcontext()
    context: AbstractContextManager[Any] = _profiler.record_function(f"ciranda:{name}")
    return context
