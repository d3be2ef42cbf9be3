"""The same parameters, optimizer state and objects on every rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch

from ciranda import _basics
from ciranda._ops import Handle
from ciranda.errors import InvalidArgumentError, NotSupportedError
from ciranda.numpy.functions import allgather_object, broadcast_object
from ciranda.torch.ops import broadcast_async_

__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters"]


def _wait_all(handles: Iterable[Handle[Any]]) -> None:
    for handle in list(handles):
        handle.wait()


def broadcast_parameters(params: Mapping[str, Any] | Iterable[tuple[str, torch.Tensor | None]], root_rank: int) -> None:
    """Give every rank the values of rank `root_rank`, in place.

    Args:
        params: `model.state_dict()` or `model.named_parameters()`. Entries that are not tensors are left alone.
        root_rank: the rank whose values are taken.

    Raises:
        InvalidArgumentError: `params` is neither, or there is no such rank.
        MismatchError: the ranks' models differ; the message names the parameter.
    """
    _basics.require_rank(root_rank)
    if isinstance(params, Mapping):
        named = sorted(params.items())
    elif isinstance(params, Iterable) and not isinstance(params, (str, torch.Tensor)):
        named = list(params)
    else:
        raise InvalidArgumentError(f"params must be a state_dict or named parameters, not {type(params).__name__}")
    if any(not (isinstance(item, tuple) and len(item) == 2) for item in named):
        raise InvalidArgumentError("params must be pairs of name and tensor, as model.named_parameters() gives them")
    _wait_all(
        broadcast_async_(tensor.detach(), root_rank, f"broadcast_parameters.{name}")
        for name, tensor in named
        if isinstance(tensor, torch.Tensor)
    )


class _Hole(NamedTuple):
    """Stands in a state_dict for a tensor that is sent by itself."""

    shape: tuple[int, ...]
    dtype: torch.dtype


def _map_leaves(tree: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(tree, dict):
        return {key: _map_leaves(value, change) for key, value in tree.items()}
    if isinstance(tree, list) or type(tree) is tuple:
        return type(tree)(_map_leaves(value, change) for value in tree)
    return change(tree)


def _dig_holes(state: Any, tensors: list[torch.Tensor]) -> Any:
    """Return `state` with a hole for every tensor, and append the tensors in order."""

    def change(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        tensors.append(leaf.detach())
        return _Hole(tuple(leaf.shape), leaf.dtype)

    return _map_leaves(state, change)


def _fill_holes(outline: Any, tensors: list[torch.Tensor]) -> Any:
    """Return `outline` with a new tensor in every hole, and append these in order."""

    def change(leaf: Any) -> Any:
        if not isinstance(leaf, _Hole):
            return leaf
        tensors.append(torch.empty(leaf.shape, dtype=leaf.dtype))
        return tensors[-1]

    return _map_leaves(outline, change)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Give every rank rank `root_rank`'s optimizer state: hyperparameters, step counts, momenta.

    Ranks whose optimizer has no state yet get it (no step is made for that). `model` is accepted for compatibility and
    not needed.

    Raises:
        NotSupportedError: (a ValueError) the optimizer is LBFGS, whose state depends on its own rank's history.
        InvalidArgumentError: there is no such rank, or the optimizers have different parameters.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise NotSupportedError("the state of torch.optim.LBFGS cannot be broadcast")
    _basics.require_rank(root_rank)
    is_root = _basics.rank() == root_rank
    tensors: list[torch.Tensor] = []
    outline = _dig_holes(optimizer.state_dict(), tensors) if is_root else None
    outline = broadcast_object(outline, root_rank, "broadcast_optimizer_state")
    state = None if is_root else _fill_holes(outline, tensors)
    _wait_all(
        broadcast_async_(tensor, root_rank, f"broadcast_optimizer_state.{index}")
        for index, tensor in enumerate(tensors)
    )
    if state is not None:
        optimizer.load_state_dict(state)
