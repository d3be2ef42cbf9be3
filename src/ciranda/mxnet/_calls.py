"""The collectives without gradients: operations of MXNet's engine, and blocking calls."""

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
    choose_op,
    divides_by_all,
    terms_of,
)
from ciranda.errors import InvalidArgumentError
from ciranda.mxnet import arrays
from ciranda.mxnet._pushing import push
from ciranda.process_sets import ProcessSet, id_of

_unnamed = Numbering()


@dataclass(frozen=True)
class Call:
    """The parameters of a call, without its arrays. The name is the same on all ranks."""

    name: str
    process_set: ProcessSet
    priority: int = 0
    op: int = Average
    prescale: float = 1.0
    postscale: float = 1.0
    divisor: Divisor = "contributors"
    root: int = -1
    #: Whether dependencies of other arrays order it after the previous call of its name.
    is_chained: bool = False

    def for_gradient(self, part: str = "gradient", **changes: Any) -> Call:
        """Return this call under a name of its own, for the backward pass."""
        return replace(self, name=f"{self.name}.{part}", **changes)

    def plain(self, part: str, op: int) -> Call:
        """Return a reduction without factors, under a name derived from this call's."""
        return Call(f"{self.name}.{part}", self.process_set, self.priority, op)


def named(name: str | None, function: str, process_set: ProcessSet) -> str:
    """Return the user's name of a call, or one with the call's number among the unnamed calls on this set."""
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
    """Push an allreduce; return its results."""
    outputs = _new(tensors)
    _push(ALLREDUCE, tensors, outputs, call)
    return outputs


def allreduce_(tensors: Sequence[NDArray], call: Call) -> None:
    """Push an allreduce in place."""
    _push(ALLREDUCE, tensors, tensors, call)


def broadcast(tensors: Sequence[NDArray], call: Call) -> list[NDArray]:
    """Push a broadcast; return its results."""
    outputs = _new(tensors)
    _push(BROADCAST, tensors, outputs, call)
    return outputs


def broadcast_(tensors: Sequence[NDArray], call: Call) -> None:
    """Push a broadcast in place."""
    _push(BROADCAST, tensors, tensors, call)


def reducescatter(tensors: Sequence[NDArray], call: Call) -> list[NDArray]:
    """Push a reducescatter; return this rank's rows."""
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
    """Run a collective whose results have unknown shapes; block until it is done."""
    engine = _basics.engine()
    with arrays.described(tensors) as described:
        return engine.run(terms_of(collective), described, None, call.name, id_of(call.process_set), splits)


def allgather(tensors: Sequence[NDArray], call: Call) -> list[NDArray]:
    """Wait for the inputs, run an allgather, and return its results."""
    if not tensors:
        return []
    outputs = _run(ALLGATHER, tensors, call)
    return [arrays.from_engine(*pair) for pair in zip(outputs, tensors, strict=True)]


def alltoall(tensor: NDArray, splits: Any, call: Call) -> tuple[NDArray, list[int]]:
    """Wait for the input, run an alltoall, and return its result and the number of rows from each rank."""
    numbers = [] if splits is None else arrays.whole_numbers(splits)
    output, counts = _run(ALLTOALL, [tensor], call, [numbers])
    return arrays.from_engine(output, tensor), [int(count) for count in counts]
