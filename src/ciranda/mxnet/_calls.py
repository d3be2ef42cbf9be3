"""The collectives without gradients: those that MXNet's engine makes, and those that wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mxnet.ndarray import NDArray

from ciranda import _basics
from ciranda._numbering import Numbering
from ciranda._ops import (
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
    BROADCAST,
    REDUCESCATTER,
    Average,
    Divisor,
    Sum,
    choose_op,
    divides_by_all,
)
from ciranda.errors import InvalidArgumentError
from ciranda.mxnet import arrays
from ciranda.mxnet._plugin import push
from ciranda.process_sets import ProcessSet, id_of

_unnamed = Numbering()


@dataclass(frozen=True)
class Call:
    """What is asked for, but for the arrays. Its name is the same on all ranks."""

    name: str
    process_set: ProcessSet
    priority: int = 0
    op: int = Average
    prescale: float = 1.0
    postscale: float = 1.0
    divisor: Divisor = "contributors"
    root: int = -1
    #: Whether MXNet carries it out after the last of its name, because of arrays between the two.
    is_chained: bool = False

    def for_gradient(self, part: str = "gradient", **changes: Any) -> Call:
        """Return the call of the backward pass: as this one, under a name of its own."""
        return replace(self, name=f"{self.name}.{part}", **changes)

    def plain(self, part: str, op: int) -> Call:
        """Return a reduction that belongs to this call, without factors."""
        return Call(f"{self.name}.{part}", self.process_set, self.priority, op)


def named(name: str | None, function: str, process_set: ProcessSet) -> str:
    """Return the name of a call: what the user gave, or its number among those without names on this set."""
    if name is not None:
        return name
    _basics.engine()
    return f"{function}.noname.{_unnamed.next(process_set)}"


def reduction(
    name: str,
    process_set: ProcessSet,
    priority: int,
    op: int | None,
    average: bool | None,
    factors: tuple[float, float],
    divisor: Divisor,
) -> Call:
    """Return the call of an allreduce or a reducescatter."""
    return Call(name, process_set, priority, choose_op(op, average), *factors, divisor)


def _push(collective: int, inputs: Sequence[NDArray], outputs: Sequence[NDArray], call: Call) -> None:
    if not inputs:
        return
    push(
        collective,
        inputs,
        outputs,
        call.name,
        id_of(call.process_set),
        op=call.op,
        root=call.root,
        prescale=call.prescale,
        postscale=call.postscale,
        divides_by_all=divides_by_all(call.divisor, call.op),
        priority=call.priority,
        is_chained=call.is_chained,
    )


def _new(tensors: Sequence[NDArray]) -> list[NDArray]:
    return [arrays.empty(arrays.shape_of(tensor), tensor) for tensor in tensors]


def allreduce(tensors: Sequence[NDArray], call: Call) -> list[NDArray]:
    """Push it, and return the results."""
    outputs = _new(tensors)
    _push(ALLREDUCE, tensors, outputs, call)
    return outputs


def allreduce_(tensors: Sequence[NDArray], call: Call) -> None:
    """Push it, in place."""
    _push(ALLREDUCE, tensors, tensors, call)


def broadcast(tensors: Sequence[NDArray], call: Call) -> list[NDArray]:
    """Push it, and return the results."""
    outputs = _new(tensors)
    _push(BROADCAST, tensors, outputs, call)
    return outputs


def broadcast_(tensors: Sequence[NDArray], call: Call) -> None:
    """Push it, in place."""
    _push(BROADCAST, tensors, tensors, call)


def reducescatter(tensors: Sequence[NDArray], call: Call) -> list[NDArray]:
    """Push it, and return this rank's rows."""
    size, position = call.process_set.size(), call.process_set.rank()
    if size is None or position is None:
        raise InvalidArgumentError(f"rank {_basics.rank()} is not in {call.process_set!r}")
    outputs = []
    for tensor in tensors:
        n_rows, *row = _shape_of_rows(tensor, call.name)
        share = n_rows // size + (position < n_rows % size)
        outputs.append(arrays.empty((share, *row), tensor))
    _push(REDUCESCATTER, tensors, outputs, call)
    return outputs


def _shape_of_rows(tensor: NDArray, name: str) -> tuple[int, ...]:
    shape = arrays.shape_of(tensor)
    if not shape:
        raise InvalidArgumentError(f"{name!r}: a scalar has no rows: give it at least one dimension")
    return shape


def _run(collective: int, tensors: Sequence[NDArray], call: Call, splits: list[list[int]] | None = None) -> list[Any]:
    """Make a collective whose results' shapes nobody knows beforehand, and wait for it."""
    engine = _basics.engine()
    with arrays.described(tensors) as described:
        return engine.run(collective, described, None, call.name, Sum, -1, 1.0, 1.0, splits, id_of(call.process_set))


def allgather(tensors: Sequence[NDArray], call: Call) -> list[NDArray]:
    """Wait for the inputs, make it, and return the results."""
    if not tensors:
        return []
    outputs = _run(ALLGATHER, tensors, call)
    return [arrays.from_engine(*pair) for pair in zip(outputs, tensors, strict=True)]


def alltoall(tensor: NDArray, splits: Any, call: Call) -> tuple[NDArray, list[int]]:
    """Wait for the input, make it, and return the result, and how many rows came from each rank."""
    numbers = [] if splits is None else arrays.whole_numbers(splits)
    output, counts = _run(ALLTOALL, [tensor], call, [numbers])
    return arrays.from_engine(output, tensor), [int(count) for count in counts]
