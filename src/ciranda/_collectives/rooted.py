"""Collectives with a root: reduce and gather, whose result only the root gets, and scatter, whose rows the root has.

On ranks other than the root, reduce and gather return None. If a framework records gradients, they return a tensor
without elements instead, from which this rank starts its part of the backward pass: every rank must run it, for example
by `result.sum().backward()`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ciranda import _basics, _core
from ciranda._collectives import rules
from ciranda._collectives.adapter import Given, Splits, Tensor
from ciranda._collectives.rows import Rows
from ciranda._ops import (
    GATHER,
    REDUCE,
    SCATTER,
    Average,
    Divisor,
    Handle,
    choose_op,
)
from ciranda.process_sets import ProcessSet, global_process_set


def _nothing(_operation: _core.Operation) -> None:
    """The result of a rank that is not the root."""


class Rooted(Rows[Given, Tensor, Splits]):
    """The collectives with a root."""

    # --- reduce

    def grouped_reduce_async(
        self,
        tensors: Sequence[Given],
        root_rank: int,
        op: int = Average,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        divisor: Divisor = "contributors",
    ) -> Handle[list[Tensor] | None]:
        """Start `grouped_reduce()`. `synchronize(handle)` returns the list of results on the root, None elsewhere."""
        work = self._all_readable(tensors)
        results = [self._like(tensor) for tensor in work] if _basics.rank() == root_rank else None
        operation = self._submit_reduction(
            REDUCE,
            self._all_for_engine(work),
            None if results is None else self._all_for_engine(results),
            name,
            choose_op(op, None),
            prescale_factor,
            postscale_factor,
            process_set,
            divisor,
            root=root_rank,
        )
        return Handle(operation, _nothing if results is None else self._all_as_given(tensors, work, results))

    def grouped_reduce(
        self,
        tensors: Sequence[Given],
        root_rank: int,
        op: int = Average,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        divisor: Divisor = "contributors",
    ) -> list[Tensor] | None:
        """`reduce()` of several tensors as one operation: all or none. They may differ in shape and dtype."""
        if self._is_recorded(tensors):
            call = rules.Reduction(op, prescale_factor, postscale_factor, process_set, None, divisor)
            return self._recorded(rules.Reduce(self, root_rank, name, call), tensors)
        return self._awaited.grouped_reduce_async(
            tensors, root_rank, op, name, process_set, prescale_factor, postscale_factor, divisor
        ).wait()

    def reduce_async(
        self,
        tensor: Given,
        root_rank: int,
        op: int = Average,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        divisor: Divisor = "contributors",
    ) -> Handle[Tensor | None]:
        """Start `reduce()`. `synchronize(handle)` returns the result. Do not write to `tensor` before that."""
        group = self.grouped_reduce_async(
            [tensor], root_rank, op, name, process_set, prescale_factor, postscale_factor, divisor
        )
        return group.then(lambda results: None if results is None else results[0])

    def reduce(
        self,
        tensor: Given,
        root_rank: int,
        op: int = Average,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        divisor: Divisor = "contributors",
    ) -> Tensor | None:
        """Combine `tensor` over all ranks; return the result of `allreduce()` on rank `root_rank`, None elsewhere.

        Args:
            tensor: the same shape and dtype on every rank.
            root_rank: the rank that gets the result; the same on every rank.
            op: Average (the default), or any other that `allreduce()` takes. Average and Sum have a gradient, in a
                framework with gradients: the root's, scaled as the tensor was.
            name: see the module.
            process_set: the ranks that take part; all, if not given.
            prescale_factor: multiplies every input before they are combined.
            postscale_factor: multiplies the result.
            divisor: of an average, as for `allreduce()`.
        """
        results = self.grouped_reduce(
            [tensor], root_rank, op, name, process_set, prescale_factor, postscale_factor, divisor
        )
        return None if results is None else results[0]

    def grouped_reduce_async_(
        self,
        tensors: Sequence[Tensor],
        root_rank: int,
        op: int = Average,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        divisor: Divisor = "contributors",
    ) -> Handle[list[Tensor]]:
        """Start `grouped_reduce_()`. `synchronize(handle)` returns the list of the same tensors."""
        work = self._all_writable(tensors)
        targets = self._all_for_engine(work)
        is_root = _basics.rank() == root_rank
        operation = self._submit_reduction(
            REDUCE,
            targets,
            targets if is_root else None,
            name,
            choose_op(op, None),
            prescale_factor,
            postscale_factor,
            process_set,
            divisor,
            root=root_rank,
        )

        def finish(_operation: _core.Operation) -> list[Tensor]:
            return self._all_brought_back(work, tensors) if is_root else list(tensors)

        return Handle(operation, finish)

    def grouped_reduce_(
        self,
        tensors: Sequence[Tensor],
        root_rank: int,
        op: int = Average,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        divisor: Divisor = "contributors",
    ) -> list[Tensor]:
        """`grouped_reduce()` in place: the root's tensors get the results. Returns the list of the same tensors."""
        return self._awaited.grouped_reduce_async_(
            tensors, root_rank, op, name, process_set, prescale_factor, postscale_factor, divisor
        ).wait()

    def reduce_async_(
        self,
        tensor: Tensor,
        root_rank: int,
        op: int = Average,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        divisor: Divisor = "contributors",
    ) -> Handle[Tensor]:
        """Start `reduce_()`. Do not write to `tensor` before `synchronize(handle)`, which returns it."""
        group = self.grouped_reduce_async_(
            [tensor], root_rank, op, name, process_set, prescale_factor, postscale_factor, divisor
        )
        return group.then(lambda results: results[0])

    def reduce_(
        self,
        tensor: Tensor,
        root_rank: int,
        op: int = Average,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        divisor: Divisor = "contributors",
    ) -> Tensor:
        """`reduce()` in place: the root's `tensor` gets the result, the others' are unchanged. Returns `tensor`.

        Raises InvalidArgumentError for a read-only tensor, on every rank.
        """
        return self._awaited.reduce_async_(
            tensor, root_rank, op, name, process_set, prescale_factor, postscale_factor, divisor
        ).wait()

    # --- gather

    def grouped_gather_async(
        self,
        tensors: Sequence[Given],
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Handle[list[Tensor] | None]:
        """Start `grouped_gather()`. `synchronize(handle)` returns the list of results on the root, None elsewhere."""
        work = self._all_readable(tensors)
        operation = self._submit_move(GATHER, self._all_for_moving(work), None, name, process_set, root_rank)
        is_root = _basics.rank() == root_rank
        return Handle(operation, lambda done: self._all_from_engine(done.outputs(), work) if is_root else None)

    def grouped_gather(
        self,
        tensors: Sequence[Given],
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> list[Tensor] | None:
        """`gather()` of several tensors as one operation: all or none."""
        if self._is_recorded(tensors):
            return self._recorded(rules.Gather(self, root_rank, name, process_set), tensors)
        return self._awaited.grouped_gather_async(tensors, root_rank, name, process_set).wait()

    def gather_async(
        self, tensor: Given, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Handle[Tensor | None]:
        """Start `gather()`. `synchronize(handle)` returns the result. Do not write to `tensor` before that."""
        group = self.grouped_gather_async([tensor], root_rank, name, process_set)
        return group.then(lambda results: None if results is None else results[0])

    def gather(
        self, tensor: Given, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Tensor | None:
        """Join the tensors of all ranks along dimension 0; return the result on rank `root_rank`, None elsewhere.

        Ranks may differ in the size of dimension 0 only. The gradient of every row, in a framework with gradients,
        returns to the rank that contributed the row. Raises InvalidArgumentError for a 0-d tensor.
        """
        results = self.grouped_gather([tensor], root_rank, name, process_set)
        return None if results is None else results[0]

    # --- scatter

    def grouped_scatter_async(
        self,
        tensors: Sequence[Given],
        root_rank: int,
        splits: Sequence[Splits | None] | None = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Handle[list[Tensor]]:
        """Start `grouped_scatter()`. `synchronize(handle)` returns the list of results."""
        work = self._all_readable(tensors)
        numbers = self._splits_lists(len(work), splits) if _basics.rank() == root_rank else None
        operation = self._submit_move(SCATTER, self._all_for_moving(work), None, name, process_set, root_rank, numbers)
        return Handle(operation, lambda done: self._all_from_engine(done.outputs(), work))

    def grouped_scatter(
        self,
        tensors: Sequence[Given],
        root_rank: int,
        splits: Sequence[Splits | None] | None = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> list[Tensor]:
        """`scatter()` of several tensors as one operation: all or none. `splits` has an entry for each."""
        if self._is_recorded(tensors):
            return self._recorded(rules.Scatter(self, root_rank, splits, name, process_set), tensors)
        return self._awaited.grouped_scatter_async(tensors, root_rank, splits, name, process_set).wait()

    def scatter_async(
        self,
        tensor: Given,
        root_rank: int,
        splits: Splits | None = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Handle[Tensor]:
        """Start `scatter()`. `synchronize(handle)` returns the result. Do not write to `tensor` before that."""
        group = self.grouped_scatter_async([tensor], root_rank, [splits], name, process_set)
        return group.then(lambda results: results[0])

    def scatter(
        self,
        tensor: Given,
        root_rank: int,
        splits: Splits | None = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Tensor:
        """Distribute the rows of rank `root_rank`'s tensor (along dimension 0), in rank order; return this rank's.

        Args:
            tensor: on the root, the rows. Elsewhere a tensor of the same dtype and the same dimensions but the first,
                whose contents are ignored: `numpy.empty((0, 3), numpy.float32)` receives rows of three float32. The
                gradient on the root joins each rank's gradient of its rows; for it, the tensors of all ranks must
                require one.
            root_rank: the rank that has the rows; the same on every rank.
            splits: on the root, the number of rows for each rank of the set: whole numbers, as a tensor or a list,
                whose sum is the first dimension. Ignored elsewhere. None: the same number to each rank, and one more
                to each of the first `rows mod size()`.
            name: see the module.
            process_set: the ranks that take part; all, if not given.
        """
        return self.grouped_scatter([tensor], root_rank, [splits], name, process_set)[0]
