"""Tensors from one rank to one other, without gradients.

What `ciranda.torch.ops` says of tensors and errors holds here too. `name` tells several messages between the two ranks
apart; without names they are paired in the order of the calls.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ciranda import _basics
from ciranda._ops import Handle, submit_transfer
from ciranda.torch.tensors import bring_all_back, bring_back, contiguous, for_engine

Tensor = torch.Tensor
Tensors = list[torch.Tensor]


def grouped_send_async(tensors: Sequence[Tensor], dest: int, name: str | None = None) -> Handle[None]:
    """Start `grouped_send()`. Do not write to the tensors before `synchronize(handle)`."""
    work = [for_engine(contiguous(tensor.detach())) for tensor in tensors]
    return Handle(submit_transfer(work, dest, _basics.rank(), name), lambda _: None)


def grouped_send(tensors: Sequence[Tensor], dest: int, name: str | None = None) -> None:
    """`send()` of several tensors as one message, for which `grouped_recv()` must be called there."""
    grouped_send_async(tensors, dest, name).wait()


def send_async(tensor: Tensor, dest: int, name: str | None = None) -> Handle[None]:
    """Start `send()`. Do not write to `tensor` before `synchronize(handle)`."""
    work = for_engine(contiguous(tensor.detach()))
    return Handle(submit_transfer(work, dest, _basics.rank(), name), lambda _: None)


def send(tensor: Tensor, dest: int, name: str | None = None) -> None:
    """Send a tensor to one other rank, which must call `recv()` with one of the same shape and dtype.

    Raises InvalidArgumentError if `dest` is no other rank, and MismatchError, on both ranks, if the two tensors differ
    in shape or dtype.
    """
    send_async(tensor, dest, name).wait()


def grouped_recv_async(tensors: Sequence[Tensor], source: int, name: str | None = None) -> Handle[Tensors]:
    """Start `grouped_recv()`. `synchronize(handle)` returns the list of the same tensors."""
    work = [contiguous(tensor) for tensor in tensors]
    operation = submit_transfer([for_engine(tensor) for tensor in work], source, source, name)
    return Handle(operation, lambda _: bring_all_back(work, tensors))


def grouped_recv(tensors: Sequence[Tensor], source: int, name: str | None = None) -> Tensors:
    """Receive into `tensors` what rank `source` sends by `grouped_send()`: all or none. Returns a list of them."""
    return grouped_recv_async(tensors, source, name).wait()


def recv_async(tensor: Tensor, source: int, name: str | None = None) -> Handle[Tensor]:
    """Start `recv()`. Neither read nor write `tensor` before `synchronize(handle)`, which returns it."""
    work = contiguous(tensor)
    return Handle(submit_transfer(for_engine(work), source, source, name), lambda _: bring_back(work, tensor))


def recv(tensor: Tensor, source: int, name: str | None = None) -> Tensor:
    """Receive into `tensor` what rank `source` sends by `send()`. Returns `tensor`. For the rest see `send()`."""
    return recv_async(tensor, source, name).wait()
