"""scan: prefix reductions over ranks. They have no gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ciranda import _core
from ciranda._collectives.adapter import Given, Splits, Tensor
from ciranda._collectives.reductions import Reductions
from ciranda._ops import Divisor, Handle, Sum
from ciranda.errors import NotSupportedError
from ciranda.process_sets import ProcessSet, global_process_set

SCAN: Final[int] = _core.COLLECTIVES["scan"]


class Scans(Reductions[Given, Tensor, Splits]):
    """Prefix reductions: each rank combines its tensor with those of the ranks before it."""

    def grouped_scan_async(
        self,
        tensors: Sequence[Given],
        op: int = Sum,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        divisor: Divisor = "contributors",
    ) -> Handle[list[Tensor]]:
        """Start `grouped_scan()`. `synchronize(handle)` returns the list of results."""
        self._refuse_recorded(tensors)
        work = self._all_readable(tensors)
        outputs = [self._like(tensor) for tensor in work]
        operation = self._submit_reduction(
            SCAN,
            self._all_for_engine(work),
            self._all_for_engine(outputs),
            name,
            op,
            prescale_factor,
            postscale_factor,
            process_set,
            divisor,
        )
        return Handle(operation, self._all_as_given(tensors, work, outputs))

    def grouped_scan(
        self,
        tensors: Sequence[Given],
        op: int = Sum,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        divisor: Divisor = "contributors",
    ) -> list[Tensor]:
        """`scan()` of several tensors as one operation: all or none. They may differ in shape and dtype."""
        return self._awaited.grouped_scan_async(
            tensors, op, name, process_set, prescale_factor, postscale_factor, divisor
        ).wait()

    def scan_async(
        self,
        tensor: Given,
        op: int = Sum,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        divisor: Divisor = "contributors",
    ) -> Handle[Tensor]:
        """Start `scan()`. `synchronize(handle)` returns the result. Do not write to `tensor` before that."""
        group = self.grouped_scan_async([tensor], op, name, process_set, prescale_factor, postscale_factor, divisor)
        return group.then(lambda results: results[0])

    def scan(
        self,
        tensor: Given,
        op: int = Sum,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        divisor: Divisor = "contributors",
    ) -> Tensor:
        """Combine `tensor` over the ranks up to this one, element by element: an inclusive prefix sum over ranks.

        Rank r gets, bit for bit, the result of an `allreduce()` among ranks 0 to r: with tensors of 1, 2 and 3, three
        ranks get 1, 3 and 6. In a process set the order is that of its ranks.

        Args:
            tensor: the same shape and dtype on every rank.
            op: Sum (the default), or any other that `allreduce()` takes, but Adasum. An Average divides by the number
                of ranks up to this one.
            name: see the module.
            process_set: the ranks that take part; all, if not given.
            prescale_factor: multiplies every input before they are combined.
            postscale_factor: multiplies the result.
            divisor: of an average, as for `allreduce()`: whether joined ranks before this one count.

        Raises:
            NotSupportedError: the framework records a gradient, or traces a program.
        """
        self._refuse_recorded((tensor,))
        return self._reduced(SCAN, tensor, name, op, prescale_factor, postscale_factor, process_set, None, divisor)

    def _refuse_recorded(self, tensors: Sequence[Any]) -> None:
        if self._is_recorded(tensors):
            raise NotSupportedError("scan has no gradient and cannot be traced; detach its input, or call it outside")
