"""Copies of state dictionaries, each of which may be written into the memory of an older one.

A tensor is copied into a buffer of the same type, device, shape and strides, whichever tensor that buffer was for. So
a tensor that appears later, or changes its shape, gets another buffer, and what no tensor needs any more is freed.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import torch

Tensor = torch.Tensor
_Kind = tuple[torch.dtype, torch.device, torch.Size, tuple[int, ...]]


@dataclass
class Snapshot:
    """A copy of a state dictionary.

    Attributes:
        content: the copy. Tensors that were the same memory are one tensor.
        buffers: its tensors, by what they are a copy of.
    """

    content: Any = None
    buffers: dict[_Kind, list[Tensor]] = field(default_factory=dict)


def taken(value: Any, over: Snapshot | None = None) -> Snapshot:
    """Return a snapshot of a state dictionary.

    Args:
        over: one that is not needed any more, whose memory this one takes. Its content is lost, even if this fails.
    """
    return _Copying({} if over is None else over.buffers).of(value)


class _Copying:
    """The making of one snapshot."""

    def __init__(self, free: dict[_Kind, list[Tensor]]) -> None:
        self._free = {kind: list(buffers) for kind, buffers in free.items()}
        self._used: dict[_Kind, list[Tensor]] = {}
        self._copies: dict[tuple[Any, ...], Tensor] = {}  # by the memory that they are copies of
        self._memo: dict[int, Any] = {}

    def of(self, value: Any) -> Snapshot:
        return Snapshot(self._copied(value), self._used)

    def _copied(self, value: Any) -> Any:
        kind = type(value)
        if kind in (Tensor, torch.nn.Parameter) and _is_plain(value):
            return self._copied_tensor(value.detach())
        if kind in (dict, OrderedDict):
            same = copy.copy(value)  # with the attributes that torch gives to it, such as the versions of modules
            for key, each in value.items():
                same[key] = self._copied(each)
            return same
        if kind in (list, tuple):
            return kind(self._copied(each) for each in value)
        return copy.deepcopy(value, self._memo)

    def _copied_tensor(self, tensor: Tensor) -> Tensor:
        kind = (tensor.dtype, tensor.device, tensor.shape, tensor.stride())
        # Not by the tensor: a state dictionary has several of a weight that several modules share.
        memory = (tensor.data_ptr(), tensor.is_conj(), tensor.is_neg(), kind)
        if memory not in self._copies:
            free = self._free.get(kind)
            buffer = free.pop() if free else torch.empty_like(tensor)
            self._copies[memory] = buffer.copy_(tensor)
            self._used.setdefault(kind, []).append(buffer)
        return self._copies[memory]


def _is_plain(tensor: Tensor) -> bool:
    """Whether its values are all there is of it, and lie in memory of its own."""
    return (
        tensor.layout is torch.strided
        and not (tensor.is_quantized or tensor.is_nested or tensor.is_meta)
        and not vars(tensor)
    )
