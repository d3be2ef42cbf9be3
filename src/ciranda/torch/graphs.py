"""CUDA graphs that have collectives: a replay raises once their world has failed or ended.

NCCL's work in a graph moves nothing from then on, and the driver says nothing of it. torch's class is the only place
where each replay comes by, also those of torch.compile.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ciranda import _basics, _core
from ciranda.errors import InvalidArgumentError

#: The attributes of a graph: the calls of this process before its capture, and the world whose calls it has.
_BEFORE, _EPOCH = "_ciranda_calls_before", "_ciranda_epoch"
_AGAIN = "capture it anew: in a CUDA graph collectives belong to the world in which they were captured"


def _check(graph: Any) -> None:
    """Raise the error of the world whose calls the graph has, if that has failed."""
    epoch = getattr(graph, _EPOCH, None)
    if epoch is None:
        return
    connected = _basics.world.engine
    if connected is None or not connected.is_open or epoch != _basics.world.epoch:
        raise InvalidArgumentError(f"the world has ended whose collectives this CUDA graph has: {_AGAIN}")
    if connected.has_failed:
        connected.await_results()  # raises it


def _begins(begin: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(begin)
    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        setattr(self, _BEFORE, _core.n_captured_calls())
        return begin(self, *args, **kwargs)

    return capture_begin


def _ends(end: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(end)
    def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        has_calls = _core.n_captured_calls() != getattr(self, _BEFORE, 0)
        setattr(self, _EPOCH, _basics.world.epoch if has_calls else None)
        return end(self, *args, **kwargs)

    return capture_end


def _replays(replay: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(replay)
    def replayed(self: Any, *args: Any, **kwargs: Any) -> Any:
        _check(self)
        return replay(self, *args, **kwargs)

    return replayed


def watch() -> None:
    """Let graphs of torch know their world, from now on."""
    graph: Any = torch.cuda.CUDAGraph
    for name, wrapped in {"capture_begin": _begins, "capture_end": _ends, "replay": _replays}.items():
        setattr(graph, name, wrapped(getattr(graph, name)))
