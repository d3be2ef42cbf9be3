"""The same parameters, optimizer states and objects on every rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import paddle

from ciranda import _basics, _consistency
from ciranda._frameworks.marks import is_distributed
from ciranda._frameworks.objects import allgather_object, broadcast_object
from ciranda._ops import Handle
from ciranda.errors import InvalidArgumentError
from ciranda.numpy import ops as numpy_ops
from ciranda.paddle import ops
from ciranda.paddle._py_func import TENSOR, memory_of
from ciranda.paddle.eager import flat
from ciranda.paddle.tensors import for_engine, in_memory, is_tensor
from ciranda.process_sets import ProcessSet, global_process_set

__all__ = [
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "check_consistency",
]

Parameters = Mapping[str, paddle.Tensor] | Iterable[tuple[str, paddle.Tensor]]


def _pairs(params: Parameters) -> list[tuple[str, paddle.Tensor]]:
    pairs = list(params.items()) if isinstance(params, Mapping) else list(params)
    wrong = [pair for pair in pairs if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str))]
    if wrong:
        raise InvalidArgumentError(
            "expected what layer.state_dict() or layer.named_parameters() return: names and tensors; got "
            f"{type(wrong[0]).__name__} among them"
        )
    return [
        (name, tensor)
        for name, tensor in pairs
        if isinstance(tensor, TENSOR) or (is_tensor(tensor) and not is_distributed(tensor))
    ]


def broadcast_parameters(params: Parameters, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> None:
    """Broadcast the values of rank `root_rank`, in place. For parameters and buffers of layers of dygraph, or programs.

    Local ones (`is_distributed`) of layers are ignored; those of programs bear no mark: leave them out.

    Args:
        params: the result of `layer.state_dict()` or `layer.named_parameters()`, alike on all ranks; or that of
            `program.state_dict()`, after the startup program has run.
        root_rank: the rank whose values are taken.
        process_set: the ranks that take part.

    Raises:
        InvalidArgumentError: there is no such rank, or `params` has other contents than names and tensors.
        MismatchError: the ranks' parameters differ; the message names the parameter.
    """
    _basics.require_rank(root_rank)
    with paddle.no_grad():
        started = [
            _broadcast(tensor, root_rank, f"broadcast_parameters.{name}", process_set)
            for name, tensor in _pairs(params)
        ]
        for handle in started:
            handle.wait()


def _broadcast(tensor: Any, root_rank: int, name: str, process_set: ProcessSet) -> Handle[Any]:
    if isinstance(tensor, TENSOR):
        return numpy_ops.broadcast_async_(memory_of(tensor), root_rank, name, process_set)
    return ops.broadcast_async_(tensor, root_rank, name, process_set)


def broadcast_optimizer_state(optimizer: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> None:
    """Broadcast the state of rank `root_rank`'s optimizer to every rank: moments, learning rates, counts.

    The state of local parameters (`is_distributed`) is ignored.

    Args:
        optimizer: of dygraph.
        root_rank: the rank whose state is taken.
        process_set: the ranks that take part.
    """
    _basics.require_rank(root_rank)
    mine = optimizer.state_dict()
    own = tuple(f"{each.name}_" for each in flat(optimizer._parameter_list) if is_distributed(each))
    shared = {name: value for name, value in mine.items() if not name.startswith(own)}
    state = {name: value.numpy() if is_tensor(value) else value for name, value in shared.items()}
    theirs = broadcast_object(state, root_rank, "broadcast_optimizer_state", process_set)
    if _basics.rank() != root_rank:
        found = {name: paddle.to_tensor(value) if hasattr(value, "shape") else value for name, value in theirs.items()}
        optimizer.set_state_dict({**mine, **found})


def check_consistency(params: Parameters, process_set: ProcessSet = global_process_set) -> None:
    """Raise MismatchError unless every rank has the same tensors, bit for bit. Only checksums are sent.

    Args:
        params: the result of `layer.state_dict()`, `layer.named_parameters()` or `program.state_dict()`.
        process_set: the ranks that compare, all of which must call this.

    Raises:
        MismatchError: on every rank. It names the first tensor that differs, and the ranks where it does.
    """
    named = [
        _named(name, memory_of(tensor) if isinstance(tensor, TENSOR) else in_memory(tensor))
        for name, tensor in _pairs(params)
    ]
    _consistency.compare(named, process_set)


def _named(name: str, tensor: Any) -> _consistency.Named:
    kind = f"{tensor.dtype} {list(tensor.shape)}"
    return _consistency.Named(name, kind, for_engine(tensor) if is_tensor(tensor) else tensor)
