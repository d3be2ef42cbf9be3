"""The spans in torch.profiler of calls (see `ciranda._spans`), and of what an optimizer does."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.autograd.profiler

_profiler: Any = torch.autograd.profiler
_record_fast: Any = getattr(torch._C._profiler, "_RecordFunctionFast", None)  # since torch 2.2


def make_span(name: str, tensors: list[Any], attributes: Mapping[str, Any]) -> AbstractContextManager[Any]:
    """Return a span that shows the attributes, if the profile has shapes."""
    context: AbstractContextManager[Any]
    if _record_fast is None:
        context = _profiler.record_function(name)
    else:
        context = _record_fast(name, [each for each in tensors if isinstance(each, torch.Tensor)], dict(attributes))
    return context


def part(name: str) -> AbstractContextManager[Any]:
    """Record what is done within it, if a profile is under way."""
    if not _profiler._is_profiler_enabled:
        return nullcontext()
    context: AbstractContextManager[Any] = _profiler.record_function(f"ciranda:{name}")
    return context
