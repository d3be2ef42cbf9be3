"""allgather and broadcast, in all their forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ciranda._basics import engine, world
from ciranda._collectives import rules
from ciranda._collectives.adapter import Given, Splits, Tensor
from ciranda._collectives.reductions import Reductions
from ciranda._ops import ALLGATHER, BROADCAST, Handle, InPlaceHandle, Sum, terms_of
from ciranda._spans import Recorded, profiler
from ciranda.process_sets import ProcessSet, global_process_set, id_of


class Gathers(Reductions[Given, Tensor, Splits]):
    """The collectives that copy tensors to all ranks unchanged."""

    def allgather_async(
        self, tensor: Given, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Handle[Tensor]:
        """Start `allgather()`. `synchronize(handle)` returns the result."""
        work = self._readable(tensor)
        operation = self._submit_move(ALLGATHER, self._for_moving(work), None, name, process_set)
        return Handle(operation, lambda done: self._from_engine(done.outputs()[0], work))

    def allgather(self, tensor: Given, name: str | None = None, process_set: ProcessSet = global_process_set) -> Tensor:
        """Join the tensors of all ranks along dimension 0, in rank order; every rank gets the same new tensor.

        Ranks may differ in the size of dimension 0 only. Raises InvalidArgumentError for a 0-d tensor.
        """
        if self._gradients is not None and self._gradients.needed((tensor,)):
            return self.grouped_allgather([tensor], name, process_set)[0]
        work = self._readable(tensor)
        connected: Any = world.engine or engine()
        if profiler.switch._is_profiler_enabled:
            connected = Recorded(connected, ALLGATHER)
        outputs = connected.run(terms_of(ALLGATHER), self._for_moving(work), None, name, id_of(process_set))
        return self._from_engine(outputs[0], work)

    def grouped_allgather_async(
        self, tensors: Sequence[Given], name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Handle[list[Tensor]]:
        """Start `grouped_allgather()`. `synchronize(handle)` returns the list of results."""
        work = self._all_readable(tensors)
        operation = self._submit_move(ALLGATHER, self._all_for_moving(work), None, name, process_set)
        return Handle(operation, lambda done: self._all_from_engine(done.outputs(), work))

    def grouped_allgather(
        self, tensors: Sequence[Given], name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> list[Tensor]:
        """`allgather()` of several tensors as one operation: all or none."""
        if self._is_recorded(tensors):
            return self._recorded(rules.Allgather(self, name, process_set), tensors)
        return self._awaited.grouped_allgather_async(tensors, name, process_set).wait()

    def broadcast_async(
        self, tensor: Given, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Handle[Tensor]:
        """Start `broadcast()`. `synchronize(handle)` returns the result."""
        work = self._readable(tensor)
        output = self._like(work)
        source, target = self._for_moving(work), self._for_moving(output)
        operation = self._submit_move(BROADCAST, source, target, name, process_set, root_rank)
        return Handle(operation, lambda _: self._as_given(tensor, work, output))

    def broadcast(
        self, tensor: Given, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Tensor:
        """Return the tensor of rank `root_rank`, on every rank. All ranks must give the same shape, dtype and root."""
        if self._is_recorded((tensor,)):
            return self.grouped_broadcast([tensor], root_rank, name, process_set)[0]
        return self._reduced(BROADCAST, tensor, name, Sum, 1.0, 1.0, process_set, None, "contributors", root_rank)

    def broadcast_async_(
        self, tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Handle[Tensor]:
        """Start `broadcast_()`. Neither read nor write `tensor` before `synchronize(handle)`, which returns it."""
        work = self._writable(tensor)
        target = self._for_moving(work)
        operation = self._submit_move(BROADCAST, target, target, name, process_set, root_rank)
        return InPlaceHandle(operation, self._bring_back, work, tensor)

    def broadcast_(
        self, tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Tensor:
        """`broadcast()` in place. Returns `tensor`. Raises InvalidArgumentError if it is read-only."""
        return self._moved_in_place(BROADCAST, tensor, name, process_set, root_rank)

    def _moved_in_place(
        self, collective: int, tensor: Tensor, name: str | None, process_set: ProcessSet, root: int = -1
    ) -> Tensor:
        """Return `tensor` with the result of a broadcast or an alltoall of equal parts."""
        work = self._writable(tensor)
        target = self._for_moving(work)
        connected: Any = world.engine or engine()
        if profiler.switch._is_profiler_enabled:
            connected = Recorded(connected, collective)
        connected.run(terms_of(collective, Sum, root), target, target, name, id_of(process_set))
        return self._bring_back(work, tensor)

    def grouped_broadcast_async(
        self,
        tensors: Sequence[Given],
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Handle[list[Tensor]]:
        """Start `grouped_broadcast()`. `synchronize(handle)` returns the list of results."""
        work = self._all_readable(tensors)
        outputs = [self._like(tensor) for tensor in work]
        sources, targets = self._all_for_moving(work), self._all_for_moving(outputs)
        operation = self._submit_move(BROADCAST, sources, targets, name, process_set, root_rank)
        return Handle(operation, self._all_as_given(tensors, work, outputs))

    def grouped_broadcast(
        self,
        tensors: Sequence[Given],
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> list[Tensor]:
        """`broadcast()` of several tensors as one operation: all or none. They may differ in shape and dtype."""
        if self._is_recorded(tensors):
            return self._recorded(rules.Broadcast(self, root_rank, name, process_set), tensors)
        return self._awaited.grouped_broadcast_async(tensors, root_rank, name, process_set).wait()

    def grouped_broadcast_async_(
        self,
        tensors: Sequence[Tensor],
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Handle[list[Tensor]]:
        """Start `grouped_broadcast_()`. `synchronize(handle)` returns the list of the same tensors."""
        work = self._all_writable(tensors)
        targets = self._all_for_moving(work)
        operation = self._submit_move(BROADCAST, targets, targets, name, process_set, root_rank)
        return Handle(operation, lambda _: self._all_brought_back(work, tensors))

    def grouped_broadcast_(
        self,
        tensors: Sequence[Tensor],
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> list[Tensor]:
        """`grouped_broadcast()` in place."""
        return self._awaited.grouped_broadcast_async_(tensors, root_rank, name, process_set).wait()
