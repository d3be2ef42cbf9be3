"""allreduce, in all its forms except the blocking ones with a new tensor: their signatures differ by framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ciranda._basics import engine, world
from ciranda._collectives import rules
from ciranda._collectives.adapter import Given, Splits, Tensor
from ciranda._collectives.base import Base
from ciranda._ops import ALLREDUCE, BROADCAST, Divisor, Handle, InPlaceHandle, choose_op, divides_by_all, terms_of
from ciranda._spans import Recorded, profiler
from ciranda.process_sets import ProcessSet, global_process_set, id_of


class Reductions(Base[Given, Tensor, Splits]):
    """Tensors combined element by element, with the result on all ranks."""

    def allreduce_async(
        self,
        tensor: Given,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        weight: float | None = None,
        divisor: Divisor = "contributors",
        *,
        priority: int = 0,
    ) -> Handle[Tensor]:
        """Start `allreduce()`. `synchronize(handle)` returns the result. Do not write to `tensor` before that.

        Of the calls that are ready on all ranks, those of a higher `priority` are executed first; all ranks should give
        the same.
        """
        work = self._readable(tensor)
        output = self._like(work)
        operation = self._submit_reduction(
            ALLREDUCE,
            self._for_engine(work),
            self._for_engine(output),
            name,
            choose_op(op, average),
            prescale_factor,
            postscale_factor,
            process_set,
            divisor,
            weight,
            priority=priority,
        )
        return Handle(operation, lambda _: self._as_given(tensor, work, output))

    def allreduce_async_(
        self,
        tensor: Tensor,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        weight: float | None = None,
        divisor: Divisor = "contributors",
        *,
        priority: int = 0,
    ) -> Handle[Tensor]:
        """Start `allreduce_()`. Neither read nor write `tensor` before `synchronize(handle)`, which returns it."""
        work = self._writable(tensor)
        target = self._for_engine(work)
        operation = self._submit_reduction(
            ALLREDUCE,
            target,
            target,
            name,
            choose_op(op, average),
            prescale_factor,
            postscale_factor,
            process_set,
            divisor,
            weight,
            priority=priority,
        )
        return InPlaceHandle(operation, self._bring_back, work, tensor)

    def allreduce_(
        self,
        tensor: Tensor,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        weight: float | None = None,
        divisor: Divisor = "contributors",
    ) -> Tensor:
        """Like `allreduce()`, in place. Returns `tensor`. Raises InvalidArgumentError if it is read-only."""
        work = self._writable(tensor)
        target = self._for_engine(work)
        chosen = choose_op(op, average)
        by_all = divisor != "contributors" and divides_by_all(divisor, chosen, weight)
        connected: Any = world.engine or engine()
        if profiler.switch._is_profiler_enabled:
            connected = Recorded(connected, ALLREDUCE)
        connected.run(
            terms_of(ALLREDUCE, chosen, -1, prescale_factor, postscale_factor, by_all),
            target,
            target,
            name,
            id_of(process_set),
            None,
            weight,
        )
        return self._bring_back(work, tensor)

    def grouped_allreduce_async(
        self,
        tensors: Sequence[Given],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        weight: float | None = None,
        divisor: Divisor = "contributors",
        *,
        priority: int = 0,
    ) -> Handle[list[Tensor]]:
        """Start `grouped_allreduce()`. `synchronize(handle)` returns the list of results."""
        work = self._all_readable(tensors)
        outputs = [self._like(tensor) for tensor in work]
        operation = self._submit_reduction(
            ALLREDUCE,
            self._all_for_engine(work),
            self._all_for_engine(outputs),
            name,
            choose_op(op, average),
            prescale_factor,
            postscale_factor,
            process_set,
            divisor,
            weight,
            priority=priority,
        )
        return Handle(operation, self._all_as_given(tensors, work, outputs))

    def grouped_allreduce_async_(
        self,
        tensors: Sequence[Tensor],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        weight: float | None = None,
        divisor: Divisor = "contributors",
        *,
        priority: int = 0,
    ) -> Handle[list[Tensor]]:
        """Start `grouped_allreduce_()`. `synchronize(handle)` returns the list of the same tensors."""
        work = self._all_writable(tensors)
        targets = self._all_for_engine(work)
        operation = self._submit_reduction(
            ALLREDUCE,
            targets,
            targets,
            name,
            choose_op(op, average),
            prescale_factor,
            postscale_factor,
            process_set,
            divisor,
            weight,
            priority=priority,
        )
        return Handle(operation, lambda _: self._all_brought_back(work, tensors))

    def grouped_allreduce_(
        self,
        tensors: Sequence[Tensor],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        weight: float | None = None,
        divisor: Divisor = "contributors",
    ) -> list[Tensor]:
        """`grouped_allreduce()` in place, of tensors of which no two overlap in part."""
        chosen = choose_op(op, average)
        return self._awaited.grouped_allreduce_async_(
            tensors, None, name, chosen, prescale_factor, postscale_factor, process_set, weight, divisor
        ).wait()

    def _reduced(
        self,
        collective: int,
        tensor: Given,
        name: str | None,
        op: int,
        prescale_factor: float,
        postscale_factor: float,
        process_set: ProcessSet,
        weight: float | None,
        divisor: Divisor,
        root: int = -1,
    ) -> Tensor:
        """Return the result of an allreduce, a scan or a broadcast in a new tensor, without gradients."""
        work = self._readable(tensor)
        output = self._like(work)
        handed_over = self._for_moving if collective == BROADCAST else self._for_engine
        source = handed_over(work)
        by_all = divisor != "contributors" and divides_by_all(divisor, op, weight)
        connected: Any = world.engine or engine()
        if profiler.switch._is_profiler_enabled:
            connected = Recorded(connected, collective)
        connected.run(
            terms_of(collective, op, root, prescale_factor, postscale_factor, by_all),
            source,
            output if source is work else handed_over(output),  # which are alike, and handed over alike
            name,
            id_of(process_set),
            None,
            weight,
        )
        return output if work is tensor else self._as_given(tensor, work, output)

    def _grouped_allreduce(self, tensors: Sequence[Given], name: str | None, call: rules.Reduction) -> list[Tensor]:
        """`grouped_allreduce()`, with gradients."""
        if self._is_recorded(tensors):
            return self._recorded(rules.Allreduce(self, name, call), tensors)
        return self._awaited.grouped_allreduce_async(tensors, None, name, *call).wait()
