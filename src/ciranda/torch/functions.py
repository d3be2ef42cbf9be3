"""The same parameters, optimizer state and objects on every rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch

from ciranda import _basics, _consistency
from ciranda._frameworks.marks import is_distributed
from ciranda._frameworks.objects import allgather_object, broadcast_object
from ciranda._ops import Handle
from ciranda.errors import InvalidArgumentError
from ciranda.process_sets import ProcessSet, global_process_set
from ciranda.torch.ops import broadcast_async_
from ciranda.torch.tensors import allocate_shared, contiguous, for_moving, laid_out_like, strides_like

__all__ = [
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "check_consistency",
    "empty",
]

NamedTensors = Mapping[str, Any] | Iterable[tuple[str, torch.Tensor | None]]


def empty(*size: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return a new tensor in memory that the ranks of a host share, and combine without a copy. All ranks must call it.

    `allreduce_` and `grouped_allreduce_` reduce it in place, from about 16 KiB on. On several hosts, or if `/dev/shm`
    has no room, it is in private memory, on all ranks alike. It contains zeros.

    Args:
        size: its shape; ranks need not agree.
        dtype: by default torch's default dtype.
    """
    wanted = torch.empty(size, dtype=dtype, device="meta")
    memory, _ = allocate_shared(wanted.numel() * wanted.element_size())
    return memory.view(wanted.dtype).view(wanted.shape)


def _wait_all(handles: Iterable[Handle[Any]]) -> None:
    for handle in list(handles):
        handle.wait()


def _named_tensors(params: NamedTensors) -> list[tuple[str, torch.Tensor]]:
    """Return the pairs of name and tensor, a mapping's in the order of the names, without distributed tensors."""
    if isinstance(params, Mapping):
        named = sorted(params.items())
    elif isinstance(params, Iterable) and not isinstance(params, (str, torch.Tensor)):
        named = list(params)
    else:
        raise InvalidArgumentError(f"params must be a state_dict or named parameters, not {type(params).__name__}")
    if any(not (isinstance(item, tuple) and len(item) == 2) for item in named):
        raise InvalidArgumentError("params must be pairs of name and tensor, as model.named_parameters() gives them")
    found = [(name, each) for name, each in named if isinstance(each, torch.Tensor) and not is_distributed(each)]
    lazy = [name for name, each in found if torch.nn.parameter.is_lazy(each)]
    if lazy:
        raise InvalidArgumentError(
            f"parameter '{lazy[0]}' is a lazy module's, which the first forward pass makes: run the model once, as on "
            "a batch of zeros, before its parameters are sent or compared"
        )
    return found


def broadcast_parameters(params: NamedTensors, root_rank: int) -> None:
    """Broadcast the values of rank `root_rank` to every rank, in place.

    Args:
        params: `model.state_dict()` or `model.named_parameters()`. Entries that are not tensors are ignored, and so are
            those whose attribute `is_distributed` is True.
        root_rank: the rank whose values are taken.

    Raises:
        InvalidArgumentError: `params` is neither, or has a lazy parameter that no forward pass has made yet; or there
            is no such rank.
        MismatchError: the ranks' models differ; the message names the parameter.
    """
    _basics.require_rank(root_rank)
    _wait_all(
        broadcast_async_(tensor.detach(), root_rank, f"broadcast_parameters.{name}")
        for name, tensor in _named_tensors(params)
    )


def check_consistency(params: NamedTensors, process_set: ProcessSet = global_process_set) -> None:
    """Raise MismatchError unless every rank has the same tensors, bit for bit. Only checksums are sent.

    Args:
        params: `model.state_dict()` or `model.named_parameters()`. Entries that are not tensors are ignored, and so are
            those whose attribute `is_distributed` is True.
        process_set: the ranks that compare, all of which must call this.

    Raises:
        InvalidArgumentError: `params` is neither.
        MismatchError: on every rank. It names the first tensor that differs, and the ranks where it does.
    """
    named = []
    for name, tensor in _named_tensors(params):
        work = contiguous(tensor.detach())
        named.append(_consistency.Named(name, f"{tensor.dtype} {list(tensor.shape)}", for_moving(work)))
    _consistency.compare(named, process_set)


class _Hole(NamedTuple):
    """The placeholder in a state_dict for a tensor that is sent separately."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


def _map_leaves(tree: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(tree, dict):
        return {key: _map_leaves(value, change) for key, value in tree.items()}
    if isinstance(tree, list) or type(tree) is tuple:
        return type(tree)(_map_leaves(value, change) for value in tree)
    return change(tree)


def _dig_holes(state: Any, tensors: list[torch.Tensor]) -> Any:
    """Return `state` with a hole for every dense tensor, and append these in order."""

    def change(leaf: Any) -> Any:
        # A sparse one is sent along with the rest.
        if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided:
            return leaf
        tensors.append(leaf.detach())
        return _Hole(tuple(leaf.shape), strides_like(leaf), leaf.dtype)

    return _map_leaves(state, change)


def _fill_holes(outline: Any, tensors: list[torch.Tensor]) -> Any:
    """Return `outline` with a new tensor in every hole, and append these in order."""

    def change(leaf: Any) -> Any:
        if not isinstance(leaf, _Hole):
            return leaf
        tensors.append(torch.empty_strided(leaf.shape, leaf.strides, dtype=leaf.dtype, device="cpu"))
        return tensors[-1]

    return _map_leaves(outline, change)


def _unconverted(loaded: Any, sent: Any) -> Any:
    """Return `loaded` with the tensors of `sent` wherever load_state_dict() has converted them."""
    if isinstance(sent, torch.Tensor):
        return loaded if loaded.dtype == sent.dtype else sent.to(loaded.device)
    if isinstance(sent, dict):
        return {key: _unconverted(loaded[key], value) for key, value in sent.items()}
    if isinstance(sent, list) or type(sent) is tuple:
        return type(sent)(_unconverted(*pair) for pair in zip(loaded, sent, strict=True))
    return loaded


def _load_exactly(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load a state_dict. Unlike torch, leave tensors their types where the parameters have others.

    A hyperparameter that is a tensor, such as a learning rate, stays the tensor that schedulers and captured graphs
    hold, where it is.
    """
    before = [dict(group) for group in optimizer.param_groups]
    optimizer.load_state_dict(state)
    for group, earlier in zip(optimizer.param_groups, before, strict=True):
        for key, mine in earlier.items():
            sent = group.get(key)
            if isinstance(mine, torch.Tensor) and isinstance(sent, torch.Tensor) and mine.shape == sent.shape:
                mine.detach().copy_(sent)
                group[key] = mine
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, entries in state["state"].items():
        if isinstance(index, int):
            mine = optimizer.state[parameters[index]]
            mine.update(_unconverted(mine, entries))


def _lay_out_state(optimizer: torch.optim.Optimizer) -> None:
    """Give the state of each parameter the parameter's strides on this rank, as optimizers make it."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            entries = optimizer.state.get(parameter, {})
            for key, value in entries.items():
                if isinstance(value, torch.Tensor) and value.layout is torch.strided and value.shape == parameter.shape:
                    entries[key] = laid_out_like(parameter, value)


def _distributed_in(optimizer: torch.optim.Optimizer) -> set[int]:
    """Return the positions of an optimizer's parameters that are local to each rank."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return {place for place, parameter in enumerate(parameters) if is_distributed(parameter)}


def _state_of(optimizer: torch.optim.Optimizer, places: set[int], *, is_of: bool) -> dict[str, Any]:
    """Return the optimizer's state_dict(), of the parameters at these positions only, or of all others."""
    state = optimizer.state_dict()
    if not places:
        return state
    return {**state, "state": {key: value for key, value in state["state"].items() if (key in places) == is_of}}


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Broadcast rank `root_rank`'s optimizer state to every rank: hyperparameters, step counts, momenta.

    Works for every optimizer whose state_dict() is complete, LBFGS included. Ranks whose optimizer has no state yet get
    it, without a dummy step. On every rank a parameter's state lies in memory like the parameter (`memory_format`), as
    fused optimizers expect. State of parameters whose attribute `is_distributed` is True stays local. `model` is
    accepted for compatibility and not needed.

    Raises:
        InvalidArgumentError: there is no such rank.
        ValueError: this rank's optimizer has other parameters than the root's.
    """
    _basics.require_rank(root_rank)
    is_root = _basics.rank() == root_rank
    tensors: list[torch.Tensor] = []
    own = _distributed_in(optimizer)
    outline = _dig_holes(_state_of(optimizer, own, is_of=False), tensors) if is_root else None
    outline = broadcast_object(outline, root_rank, "broadcast_optimizer_state")
    state = None if is_root else _fill_holes(outline, tensors)
    _wait_all(
        broadcast_async_(tensor, root_rank, f"broadcast_optimizer_state.{index}")
        for index, tensor in enumerate(tensors)
    )
    if state is not None:
        if own:
            state["state"].update(_state_of(optimizer, own, is_of=True)["state"])
        _load_exactly(optimizer, state)
    _lay_out_state(optimizer)
