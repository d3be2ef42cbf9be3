"""Gradients of the collectives.

Every rank has its own loss. The gradient of allreduce is that of the *sum of all ranks' losses*: the gradients of all
ranks' results are summed (averaged for op=Average), scaled by both factors, and are the gradient of every rank's input;
in a weighted average times the rank's weight over the sum of all. For Min and Max the selected elements get it, in
equal parts if several were selected; the other operations have no gradient here. The gradients of allgather and
broadcast are, as in Horovod, those of the *mean* of the ranks' losses.

The gradient of a row of an alltoall returns to the rank that sent the row. Through reducescatter, as in Horovod, every
rank gets all ranks' gradients of their shares, for op=Sum multiplied by the number of ranks.

The gradients of reduce, gather and scatter are those of the sum of all ranks' losses. If only the root has a result,
the other ranks have a tensor without elements in its place, from which they start their part of the backward pass.
There are no second derivatives of these.

The backward pass communicates, so all ranks must make it, and in the same order. Its calls are named after the call
that is differentiated, if that has a name: "x.gradient" and, where there are several, "x.gradient.sizes" and the like.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import numpy as np

from ciranda import _basics
from ciranda._collectives.adapter import Tensor
from ciranda._ops import ALLGATHER, ALLREDUCE, Average, Divisor, Max, Min, Sum, terms_of
from ciranda.errors import NotSupportedError
from ciranda.process_sets import ProcessSet, id_of

if TYPE_CHECKING:
    from ciranda._collectives.gathers import Gathers
    from ciranda._collectives.reductions import Reductions
    from ciranda._collectives.rooted import Rooted
    from ciranda._collectives.rows import Rows


# What bindings with functions of their own use of the rules, too.


def require_gradient(function: str, op: int, ops: tuple[int, ...]) -> None:
    """Raise NotSupportedError unless a reduction by `op` has a gradient: those by `ops` have."""
    if op not in ops:
        names = {Average: "Average", Sum: "Sum", Min: "Min", Max: "Max"}
        *others, last = [names[each] for each in ops]
        listed = f"{', '.join(others)} and {last}"
        raise NotSupportedError(f"{function} has a gradient with op={listed} only; detach its input or its result")


def compared_by(op: int, prescale: float) -> int:
    """Return the comparison, of Min and Max, on the unscaled inputs: a negative factor reverses it."""
    return op if prescale >= 0 else Min + Max - op


def factor_of_shares(op: int, prescale: float, postscale: float, process_set: ProcessSet) -> float:
    """Return the factor by which a reducescatter's gradients are multiplied before they are gathered."""
    return prescale * postscale * ((process_set.size() or 1) if op == Sum else 1)


def own_rows(gradients: Sequence[Any], sizes: list[int], rows_of_all: Any, process_set: ProcessSet) -> list[Any]:
    """Return this rank's part of an allgather's reduced gradients, given the number of rows of each rank."""
    starts = rows_of_all[: process_set.rank()].sum(axis=0).tolist()
    return [each[start : start + size] for each, start, size in zip(gradients, starts, sizes, strict=True)]


class Rule(Generic[Tensor]):
    """One call that is differentiated. It keeps no tensors: of several outputs, each may have a backward pass."""

    #: How many of the results have no gradient: the last ones.
    n_constants = 0
    #: Whether the backward pass can be differentiated.
    is_differentiable_twice = True
    #: Of the call; None if it has none.
    name: str | None

    def _of_gradient(self, part: str = "") -> str | None:
        """Return the name of a call of the backward pass."""
        return None if self.name is None else f"{self.name}.gradient{part}"

    def forward(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the results, by calls that are not recorded."""
        raise NotImplementedError

    def backward(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the gradients of the tensors, given those of the results, by calls that are recorded."""
        raise NotImplementedError


class Reduction(NamedTuple):
    """The arguments of an allreduce, except tensors and name, in the order of `grouped_allreduce()`."""

    op: int
    prescale: float
    postscale: float
    process_set: ProcessSet
    weight: float | None
    divisor: Divisor


def _plain_reduction(op: int, process_set: ProcessSet) -> Reduction:
    return Reduction(op, 1.0, 1.0, process_set, None, "contributors")


def _n_rows(tensors: Sequence[Any]) -> list[int]:
    return [tensor.shape[0] if len(tensor.shape) else 0 for tensor in tensors]


def numbers_of_all(mine: list[int], process_set: ProcessSet, name: str | None = None) -> Any:
    """Return a table of whole numbers, with a row from each rank."""
    row = np.array([mine], np.int64)
    return _basics.engine().run(terms_of(ALLGATHER), row, None, name, id_of(process_set))[0]


def _share_of(weight: float, process_set: ProcessSet, name: str | None) -> float:
    """Return this rank's weight over the sum of all."""
    total = np.array(weight, np.float64)
    _basics.engine().run(terms_of(ALLREDUCE), total, total, name, id_of(process_set))
    return weight / float(total)


class Allreduce(Rule[Tensor]):
    """Of `grouped_allreduce()`."""

    def __init__(self, collectives: Reductions[Any, Tensor, Any], name: str | None, call: Reduction) -> None:
        self._collectives, self.name, self.call = collectives, name, call
        self._are_chosen: list[Any] = []

    def _plain(self, tensors: Sequence[Tensor], name: str | None, call: Reduction) -> list[Tensor]:
        return self._collectives._awaited.grouped_allreduce_async(tensors, None, name, *call).wait()

    def forward(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        call = self.call
        results = self._plain(tensors, self.name, call)
        if call.op in (Min, Max):
            # The factors may have changed what was compared, or turned the order around.
            inner = results
            if (call.prescale, call.postscale) != (1.0, 1.0):
                inner_op = compared_by(call.op, call.prescale)
                unscaled = call._replace(op=inner_op, prescale=1.0, postscale=1.0, divisor="contributors")
                inner = self._plain(tensors, self._of_gradient(".compared"), unscaled)
            self._are_chosen = [tensor == result for tensor, result in zip(tensors, inner, strict=True)]
        return results

    def backward(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        call, reduced = self.call, self._collectives._grouped_allreduce
        require_gradient("allreduce", call.op, (Average, Sum, Min, Max))
        if call.weight is not None:
            share: Any = _share_of(call.weight, call.process_set, self._of_gradient(".weight"))
            return [
                total * share for total in reduced(gradients, self._of_gradient(), call._replace(op=Sum, weight=None))
            ]
        if call.op in (Average, Sum):
            return reduced(gradients, self._of_gradient(), call)
        totals = reduced(gradients, self._of_gradient(), call._replace(op=Sum))
        return [self._shared(*pair) for pair in zip(totals, self._are_chosen, strict=True)]

    def _shared(self, total: Any, is_chosen: Any) -> Tensor:
        """Return, for Min and Max, the gradient over the number of ranks with the selected element; zero elsewhere."""
        framework = self._collectives._gradients
        assert framework is not None
        chosen: Any = framework.cast(is_chosen, total.dtype)
        name = self._of_gradient(".chosen")
        count: Any = self._plain([chosen], name, _plain_reduction(Sum, self.call.process_set))[0]
        return total * (chosen / (count + framework.cast(count == 0, total.dtype)))  # type: ignore[no-any-return]


class Allgather(Rule[Tensor]):
    """Of `grouped_allgather()`."""

    #: The gradient is that of the mean of the ranks' losses (Average), or of their sum (Sum).
    gradient_op = Average

    def __init__(self, collectives: Gathers[Any, Tensor, Any], name: str | None, process_set: ProcessSet) -> None:
        self._collectives, self.name, self.process_set = collectives, name, process_set
        self._sizes: list[int] = []

    def forward(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        self._sizes = _n_rows(tensors)
        return self._collectives._awaited.grouped_allgather_async(tensors, self.name, self.process_set).wait()

    def backward(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        sizes = numbers_of_all(self._sizes, self.process_set, self._of_gradient(".sizes"))
        call = _plain_reduction(self.gradient_op, self.process_set)
        reduced: list[Any] = self._collectives._grouped_allreduce(gradients, self._of_gradient(), call)
        return own_rows(reduced, self._sizes, sizes, self.process_set)


class Broadcast(Rule[Tensor]):
    """Of `grouped_broadcast()`."""

    #: As of Allgather.
    gradient_op = Average

    def __init__(
        self, collectives: Gathers[Any, Tensor, Any], root_rank: int, name: str | None, process_set: ProcessSet
    ) -> None:
        self._collectives, self.name = collectives, name
        self.root_rank, self.process_set = root_rank, process_set

    def forward(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        call = (self.root_rank, self.name, self.process_set)
        return self._collectives._awaited.grouped_broadcast_async(tensors, *call).wait()

    def backward(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        call = _plain_reduction(self.gradient_op, self.process_set)
        reduced: list[Any] = self._collectives._grouped_allreduce(gradients, self._of_gradient(), call)
        return (
            reduced
            if _basics.rank() == self.root_rank
            else self._collectives._zeros(self._collectives._shapes(reduced))
        )


class Reducescatter(Rule[Tensor]):
    """Of `grouped_reducescatter()`."""

    def __init__(self, collectives: Rows[Any, Tensor, Any], name: str | None, call: Reduction) -> None:
        self._collectives, self.name, self.call = collectives, name, call

    def forward(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return self._collectives._awaited._start_reducescatters(tensors, self.name, self.call, None).wait()

    def backward(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        op, prescale, postscale, process_set = self.call[:4]
        require_gradient("reducescatter", op, (Average, Sum))
        factor: Any = factor_of_shares(op, prescale, postscale, process_set)
        scaled = [gradient * factor for gradient in gradients]
        return self._collectives.grouped_allgather(scaled, self._of_gradient(), process_set)


class Alltoall(Rule[Tensor]):
    """Of `grouped_alltoall()`: its results are the received rows, and then the numbers of rows."""

    def __init__(
        self,
        collectives: Rows[Any, Tensor, Any],
        n_tensors: int,
        splits: Sequence[Any] | None,
        name: str | None,
        process_set: ProcessSet,
    ) -> None:
        self._collectives, self.splits, self.name, self.process_set = collectives, splits, name, process_set
        self._counts: list[Tensor] = []
        self.n_constants = n_tensors

    def forward(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        call = (self.splits, self.name, self.process_set)
        results = self._collectives._awaited.grouped_alltoall_async(tensors, *call).wait()
        self._counts = [counts for _, counts in results]
        return [*(output for output, _ in results), *self._counts]

    def backward(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        of_outputs = gradients[: self.n_constants]
        back = self._collectives.grouped_alltoall(of_outputs, self._counts, self._of_gradient(), self.process_set)
        return [gradient for gradient, _ in back]


class _Rooted(Rule[Tensor]):
    is_differentiable_twice = False

    def __init__(self, collectives: Rooted[Any, Tensor, Any], root_rank: int, process_set: ProcessSet) -> None:
        self._collectives, self.root_rank, self.process_set = collectives, root_rank, process_set
        self._shapes: list[tuple[tuple[int, ...], Any]] = []

    def _or_without_elements(self, results: list[Tensor] | None) -> list[Tensor]:
        if results is not None:
            return results
        return self._collectives._zeros([((0, *shape[1:]), kind) for shape, kind in self._shapes])

    @property
    def _is_root(self) -> bool:
        return _basics.rank() == self.root_rank


class Reduce(_Rooted[Tensor]):
    """Of `grouped_reduce()`: as of an allreduce whose result only the root uses."""

    def __init__(
        self, collectives: Rooted[Any, Tensor, Any], root_rank: int, name: str | None, call: Reduction
    ) -> None:
        super().__init__(collectives, root_rank, call.process_set)
        self.name, self.call = name, call

    def forward(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        self._shapes = self._collectives._shapes(tensors)
        op, prescale, postscale, process_set, _, divisor = self.call
        call = (self.root_rank, op, self.name, process_set, prescale, postscale, divisor)
        return self._or_without_elements(self._collectives._awaited.grouped_reduce_async(tensors, *call).wait())

    def backward(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        require_gradient("reduce", self.call.op, (Average, Sum))
        mine = gradients if self._is_root else self._collectives._zeros(self._shapes)
        return self._collectives._grouped_allreduce(mine, self._of_gradient(), self.call)


class Gather(_Rooted[Tensor]):
    """Of `grouped_gather()`."""

    def __init__(
        self, collectives: Rooted[Any, Tensor, Any], root_rank: int, name: str | None, process_set: ProcessSet
    ) -> None:
        super().__init__(collectives, root_rank, process_set)
        self.name = name

    def forward(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        self._shapes = self._collectives._shapes(tensors)
        call = (self.root_rank, self.name, self.process_set)
        return self._or_without_elements(self._collectives._awaited.grouped_gather_async(tensors, *call).wait())

    def backward(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        mine = [shape[0] if shape else 0 for shape, _ in self._shapes]
        splits = numbers_of_all(mine, self.process_set, self._of_gradient(".sizes")).T.tolist()
        name = self._of_gradient()
        return self._collectives.grouped_scatter(gradients, self.root_rank, splits, name, self.process_set)


class Scatter(_Rooted[Tensor]):
    """Of `grouped_scatter()`."""

    def __init__(
        self,
        collectives: Rooted[Any, Tensor, Any],
        root_rank: int,
        splits: Sequence[Any] | None,
        name: str | None,
        process_set: ProcessSet,
    ) -> None:
        super().__init__(collectives, root_rank, process_set)
        self.splits, self.name = splits, name

    def forward(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        self._shapes = self._collectives._shapes(tensors)
        call = (self.root_rank, self.splits, self.name, self.process_set)
        return self._collectives._awaited.grouped_scatter_async(tensors, *call).wait()

    def backward(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        back = self._collectives.grouped_gather(gradients, self.root_rank, self._of_gradient(), self.process_set)
        return self._collectives._zeros(self._shapes) if back is None else back
