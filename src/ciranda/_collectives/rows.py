"""The collectives that split tensors along dimension 0: alltoall in all its forms, and the parts of reducescatter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from ciranda import _core
from ciranda._basics import engine, world
from ciranda._collectives import rules
from ciranda._collectives.adapter import Given, Splits, Tensor
from ciranda._collectives.gathers import Gathers
from ciranda._ops import (
    ALLTOALL,
    REDUCESCATTER,
    Divisor,
    Handle,
    choose_op,
    divides_by_all,
    terms_of,
)
from ciranda._spans import Recorded, profiler
from ciranda.process_sets import ProcessSet, global_process_set, id_of


class Rows(Gathers[Given, Tensor, Splits]):
    """Rows that go to different ranks."""

    # --- alltoall

    def grouped_alltoall_async(
        self,
        tensors: Sequence[Given],
        splits: Sequence[Splits | None] | None = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Handle[list[tuple[Tensor, Tensor]]]:
        """Start `grouped_alltoall()`. `synchronize(handle)` returns the list of pairs."""
        work = self._all_readable(tensors)
        numbers = self._splits_lists(len(work), splits)
        operation = self._submit_move(ALLTOALL, self._all_for_moving(work), None, name, process_set, splits=numbers)

        def finish(done: _core.Operation) -> list[tuple[Tensor, Tensor]]:
            outputs: list[Any] = done.outputs()
            received = [self._adapter.counts(counts, None) for counts in outputs[len(work) :]]
            return list(zip(self._all_from_engine(outputs[: len(work)], work), received, strict=True))

        return Handle(operation, finish)

    def grouped_alltoall(
        self,
        tensors: Sequence[Given],
        splits: Sequence[Splits | None] | None = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> list[tuple[Tensor, Tensor]]:
        """`alltoall()` of several tensors as one operation: all or none.

        `splits` has an entry for each tensor. Returns a pair for each: the received rows, and their number from each
        rank, as int64.
        """
        if self._is_recorded(tensors):
            n = len(tensors)
            results = self._recorded(rules.Alltoall(self, n, splits, name, process_set), tensors)
            return list(zip(results[:n], results[n:], strict=True))
        return self._awaited.grouped_alltoall_async(tensors, splits, name, process_set).wait()

    @overload
    def alltoall_async(
        self,
        tensor: Given,
        splits: None = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Handle[Tensor]: ...

    @overload
    def alltoall_async(
        self, tensor: Given, splits: Splits, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Handle[tuple[Tensor, Tensor]]: ...

    def alltoall_async(
        self,
        tensor: Given,
        splits: Splits | None = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Handle[Tensor] | Handle[tuple[Tensor, Tensor]]:
        """Start `alltoall()`. `synchronize(handle)` returns the result. Do not write to `tensor` before that."""
        group = self.grouped_alltoall_async([tensor], [splits], name, process_set)
        if splits is None:
            return group.then(lambda results: results[0][0])
        return group.then(lambda results: (results[0][0], self._adapter.counts(results[0][1], splits)))

    @overload
    def alltoall(
        self,
        tensor: Given,
        splits: None = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Tensor: ...

    @overload
    def alltoall(
        self, tensor: Given, splits: Splits, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> tuple[Tensor, Tensor]: ...

    def alltoall(
        self,
        tensor: Given,
        splits: Splits | None = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Send different rows of `tensor` (dimension 0) to each rank; return the received rows, in rank order.

        Args:
            tensor: at least one dimension. Ranks may differ in the size of dimension 0 only.
            splits: the number of rows for each rank of the set, first those for rank 0: whole numbers, as a tensor or a
                list, whose sum is the first dimension. They may differ between ranks and with every call. None: the
                same number for each, which must divide the first dimension.
            name: see the module.
            process_set: the ranks that take part; all, if not given.

        Returns:
            The received tensor; if `splits` is given, a pair of it and the number of rows received from each rank, of
            the dtype of `splits` (in torch int32, if that is a list). The gradient of a row, in a framework with
            gradients, returns to the rank that sent it.
        """
        output, counts = self.grouped_alltoall([tensor], [splits], name, process_set)[0]
        return output if splits is None else (output, self._adapter.counts(counts, splits))

    def grouped_alltoall_async_(
        self, tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Handle[list[Tensor]]:
        """Start `grouped_alltoall_()`. `synchronize(handle)` returns the list of the same tensors."""
        work = self._all_writable(tensors)
        targets = self._all_for_moving(work)
        operation = self._submit_move(ALLTOALL, targets, targets, name, process_set)
        return Handle(operation, lambda _: self._all_brought_back(work, tensors))

    def grouped_alltoall_(
        self, tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> list[Tensor]:
        """`alltoall_()` of several tensors as one operation: all or none. Returns them."""
        return self._awaited.grouped_alltoall_async_(tensors, name, process_set).wait()

    def alltoall_async_(
        self, tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Handle[Tensor]:
        """Start `alltoall_()`. Neither read nor write `tensor` before `synchronize(handle)`, which returns it."""
        return self.grouped_alltoall_async_([tensor], name, process_set).then(lambda results: results[0])

    def alltoall_(
        self, tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Tensor:
        """`alltoall()` in place, of equal parts: each part of `tensor` goes to its rank, and that rank's replaces it.

        Args:
            tensor: the same number of rows on all ranks, divisible by the number of ranks; writable.
            name: see the module.
            process_set: the ranks that take part; all, if not given.

        Returns:
            `tensor`.

        Raises:
            InvalidArgumentError: it cannot be split into equal parts, or is read-only.
            MismatchError: another rank's tensor has another number of rows; or ranks have joined.
        """
        return self._moved_in_place(ALLTOALL, tensor, name, process_set)

    # --- reducescatter, whose arguments have different orders in different frameworks

    def _reducescatter(
        self,
        tensor: Given,
        name: str | None,
        op: int,
        process_set: ProcessSet,
        prescale_factor: float,
        postscale_factor: float,
        divisor: Divisor,
        output: Tensor | None,
    ) -> Tensor:
        """`reducescatter()`, without gradients."""
        work = self._readable(tensor)
        result = None if output is None else self._apart_from([work], [self._writable(output)])[0]
        chosen = choose_op(op, None)
        by_all = divisor != "contributors" and divides_by_all(divisor, chosen, None)
        connected: Any = world.engine or engine()
        if profiler.switch._is_profiler_enabled:
            connected = Recorded(connected, REDUCESCATTER)
        results = connected.run(
            terms_of(REDUCESCATTER, chosen, -1, prescale_factor, postscale_factor, by_all),
            self._for_engine(work),
            None if result is None else self._for_engine(result),
            name,
            id_of(process_set),
        )
        if result is None or output is None:
            return self._from_engine(results[0], work)
        return self._bring_back(result, output)

    def _start_reducescatters(
        self, tensors: Sequence[Given], name: str | None, call: rules.Reduction, outputs: Sequence[Tensor] | None
    ) -> Handle[list[Tensor]]:
        """Start `grouped_reducescatter()`, without gradients."""
        work = self._all_readable(tensors)
        results = None if outputs is None else self._apart_from(work, self._all_writable(outputs))
        operation = self._submit_reduction(
            REDUCESCATTER,
            self._all_for_engine(work),
            None if results is None else self._all_for_engine(results),
            name,
            choose_op(call.op, None),
            call.prescale,
            call.postscale,
            call.process_set,
            call.divisor,
        )

        def finish(done: _core.Operation) -> list[Tensor]:
            if results is not None and outputs is not None:
                return self._all_brought_back(results, outputs)
            return self._all_from_engine(done.outputs(), work)

        return Handle(operation, finish)
