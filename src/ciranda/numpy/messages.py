"""Arrays from one rank to one other.

What `ciranda.numpy.ops` says of tensors and errors holds here too. `name` tells several messages between the two ranks
apart; without names they are paired in the order of the calls.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt

from ciranda import _basics
from ciranda._ops import Handle, submit_transfer
from ciranda.numpy.arrays import Array, bring_all_back, bring_back, for_engine, readable, writable

Arrays = list[Array]


def grouped_send_async(tensors: Sequence[npt.ArrayLike], dest: int, name: str | None = None) -> Handle[None]:
    """Start `grouped_send()`. Do not write to the tensors before `synchronize(handle)`."""
    work = [for_engine(readable(tensor)) for tensor in tensors]
    return Handle(submit_transfer(work, dest, _basics.rank(), name), lambda _: None)


def grouped_send(tensors: Sequence[npt.ArrayLike], dest: int, name: str | None = None) -> None:
    """`send()` of several arrays as one message, for which `grouped_recv()` must be called there."""
    grouped_send_async(tensors, dest, name).wait()


def send_async(tensor: npt.ArrayLike, dest: int, name: str | None = None) -> Handle[None]:
    """Start `send()`. Do not write to `tensor` before `synchronize(handle)`."""
    work = for_engine(readable(tensor))
    return Handle(submit_transfer(work, dest, _basics.rank(), name), lambda _: None)


def send(tensor: npt.ArrayLike, dest: int, name: str | None = None) -> None:
    """Send an array to one other rank, which must call `recv()`.

    Args:
        tensor: any shape; `recv()` there must be given an array of the same shape and dtype.
        dest: the rank it goes to.
        name: see the module.

    Raises:
        InvalidArgumentError: `dest` is no other rank.
        MismatchError: the other's array has another shape or dtype; also there.
    """
    send_async(tensor, dest, name).wait()


def grouped_recv_async(tensors: Sequence[Array], source: int, name: str | None = None) -> Handle[Arrays]:
    """Start `grouped_recv()`. `synchronize(handle)` returns the list of the same arrays."""
    work = [writable(tensor) for tensor in tensors]
    operation = submit_transfer([for_engine(array) for array in work], source, source, name)
    return Handle(operation, lambda _: bring_all_back(work, tensors))


def grouped_recv(tensors: Sequence[Array], source: int, name: str | None = None) -> Arrays:
    """Receive into `tensors` what rank `source` sends with `grouped_send()`: all or none. Returns a list of them."""
    return grouped_recv_async(tensors, source, name).wait()


def recv_async(tensor: Array, source: int, name: str | None = None) -> Handle[Array]:
    """Start `recv()`. Neither read nor write `tensor` before `synchronize(handle)`, which returns it."""
    work = writable(tensor)
    return Handle(submit_transfer(for_engine(work), source, source, name), lambda _: bring_back(work, tensor))


def recv(tensor: Array, source: int, name: str | None = None) -> Array:
    """Receive into `tensor` what rank `source` sends with `send()`. Returns `tensor`. For the rest see `send()`."""
    return recv_async(tensor, source, name).wait()
