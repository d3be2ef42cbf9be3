"""Tensors from one rank to one other, without gradients.

`name` distinguishes several messages between the two ranks; without names they are paired in the order of the calls.
"""

from __future__ import annotations

from collections.abc import Sequence

from ciranda import _basics
from ciranda._collectives.adapter import Given, Splits, Tensor
from ciranda._collectives.base import Base
from ciranda._ops import Handle, submit_transfer


class Messages(Base[Given, Tensor, Splits]):
    """The operations between two ranks."""

    def grouped_send_async(self, tensors: Sequence[Given], dest: int, name: str | None = None) -> Handle[None]:
        """Start `grouped_send()`. Do not write to the tensors before `synchronize(handle)`."""
        work = self._all_for_moving(self._all_readable(tensors))
        return Handle(submit_transfer(work, dest, _basics.rank(), name), lambda _: None)

    def grouped_send(self, tensors: Sequence[Given], dest: int, name: str | None = None) -> None:
        """`send()` of several tensors as one message, for which `grouped_recv()` must be called there."""
        self.grouped_send_async(tensors, dest, name).wait()

    def send_async(self, tensor: Given, dest: int, name: str | None = None) -> Handle[None]:
        """Start `send()`. Do not write to `tensor` before `synchronize(handle)`."""
        work = self._for_moving(self._readable(tensor))
        return Handle(submit_transfer(work, dest, _basics.rank(), name), lambda _: None)

    def send(self, tensor: Given, dest: int, name: str | None = None) -> None:
        """Send a tensor to one other rank, which must call `recv()`.

        Args:
            tensor: any shape; `recv()` there must be given a tensor of the same shape and dtype.
            dest: the rank that receives it.
            name: distinguishes several messages between the two ranks; without names they are paired in the order of
                the calls.

        Raises:
            InvalidArgumentError: `dest` is not another rank.
            MismatchError: the other rank's tensor has another shape or dtype; raised there too.
        """
        self.send_async(tensor, dest, name).wait()

    def grouped_recv_async(
        self, tensors: Sequence[Tensor], source: int, name: str | None = None
    ) -> Handle[list[Tensor]]:
        """Start `grouped_recv()`. `synchronize(handle)` returns the list of the same tensors."""
        work = self._all_writable(tensors)
        operation = submit_transfer(self._all_for_moving(work), source, source, name)
        return Handle(operation, lambda _: self._all_brought_back(work, tensors))

    def grouped_recv(self, tensors: Sequence[Tensor], source: int, name: str | None = None) -> list[Tensor]:
        """Receive into `tensors` those that rank `source` sends by `grouped_send()`, all or none; return their list."""
        return self.grouped_recv_async(tensors, source, name).wait()

    def recv_async(self, tensor: Tensor, source: int, name: str | None = None) -> Handle[Tensor]:
        """Start `recv()`. Neither read nor write `tensor` before `synchronize(handle)`, which returns it."""
        work = self._writable(tensor)
        operation = submit_transfer(self._for_moving(work), source, source, name)
        return Handle(operation, lambda _: self._bring_back(work, tensor))

    def recv(self, tensor: Tensor, source: int, name: str | None = None) -> Tensor:
        """Receive into `tensor` the tensor that rank `source` sends by `send()`. Returns `tensor`. See `send()`."""
        return self.recv_async(tensor, source, name).wait()
