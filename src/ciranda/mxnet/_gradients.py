"""Gradients of the collectives, for MXNet's autograd: the rules of `ciranda._collectives.rules`.

Backward passes run on MXNet's threads, several at a time and in any order: all of their calls have names, derived from
those of the forward calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mxnet as mx
from mxnet import autograd
from mxnet.ndarray import NDArray

from ciranda import _basics
from ciranda._collectives.rules import compared_by, factor_of_shares, numbers_of_all, own_rows, require_gradient
from ciranda._ops import Average, Max, Min, Sum
from ciranda.mxnet import _calls, arrays
from ciranda.mxnet._calls import Call

#: Functions from tensors to results, and from the results' gradients to those of the tensors.
Forward = Callable[[Sequence[NDArray]], Sequence[NDArray]]
Backward = Callable[[Sequence[NDArray]], Sequence[NDArray]]


class _Recorded(autograd.Function):  # type: ignore[misc]
    """One call that autograd differentiates."""

    def __init__(self, forward: Forward, backward: Backward) -> None:
        super().__init__()
        self._forward, self._backward = forward, backward

    def forward(self, *tensors: NDArray) -> tuple[NDArray, ...]:
        return tuple(self._forward(tensors))

    def backward(self, *gradients: NDArray) -> tuple[NDArray, ...]:
        return tuple(self._backward(gradients))


def _differentiated(tensors: Sequence[NDArray], forward: Forward, backward: Backward) -> list[NDArray]:
    if not tensors or not autograd.is_recording():
        return list(forward(tensors))
    # MXNet's Function drops gradients that accumulate (grad_req="add") if its input is a variable: give it copies.
    inputs = [tensor.copy() for tensor in tensors]
    try:
        results = _Recorded(forward, backward)(*inputs)
    finally:
        autograd.set_recording(True)  # a failed Function leaves it switched off
    return list(results)


def allreduce(tensors: Sequence[NDArray], call: Call) -> list[NDArray]:
    """Return the results of an allreduce."""
    is_recorded = autograd.is_recording()
    chosen: list[NDArray] = []

    def forward(inputs: Sequence[NDArray]) -> list[NDArray]:
        results = _calls.allreduce(inputs, call)
        if is_recorded and call.op in (Min, Max):
            chosen.extend(_chosen(inputs, results, call))
        return results

    def backward(gradients: Sequence[NDArray]) -> list[NDArray]:
        if call.op in (Average, Sum):
            return _calls.allreduce(gradients, call.for_gradient())
        require_gradient(f"{call.name!r}: allreduce", call.op, (Average, Sum, Min, Max))
        totals = _calls.allreduce(gradients, call.for_gradient(op=Sum, divisor="contributors"))
        counts = _calls.allreduce(chosen, call.plain("chosen", Sum))
        return [total * mine / mx.nd.maximum(n, 1) for total, mine, n in zip(totals, chosen, counts, strict=True)]

    return _differentiated(tensors, forward, backward)


def _chosen(inputs: Sequence[NDArray], results: Sequence[NDArray], call: Call) -> list[NDArray]:
    """Return, for Min and Max, 1 where this rank's element was selected, else 0."""
    inner = results
    if (call.prescale, call.postscale) != (1.0, 1.0):
        # The factors may round the compared values or reverse their order: compare the unscaled ones.
        inner = _calls.allreduce(inputs, call.plain("unscaled", compared_by(call.op, call.prescale)))
    # As arrays of mx.nd, the type in backward passes for all inputs: comparisons of mx.np's give booleans.
    return [tensor.as_nd_ndarray() == result.as_nd_ndarray() for tensor, result in zip(inputs, inner, strict=True)]


def broadcast(tensor: NDArray, call: Call) -> NDArray:
    """Return the result of a broadcast."""

    def backward(gradients: Sequence[NDArray]) -> list[NDArray]:
        reduced = _calls.allreduce(gradients, call.for_gradient(op=Average))
        return reduced if _basics.rank() == call.root else [mx.nd.zeros_like(each) for each in reduced]

    return _differentiated([tensor], lambda inputs: _calls.broadcast(inputs, call), backward)[0]


def reducescatter(tensors: Sequence[NDArray], call: Call) -> list[NDArray]:
    """Return the results of a reducescatter."""

    def backward(gradients: Sequence[NDArray]) -> list[NDArray]:
        require_gradient(f"{call.name!r}: reducescatter", call.op, (Average, Sum))
        factor = factor_of_shares(call.op, call.prescale, call.postscale, call.process_set)
        return _calls.allgather([gradient * factor for gradient in gradients], call.for_gradient())

    return _differentiated(tensors, lambda inputs: _calls.reducescatter(inputs, call), backward)


def allgather(tensors: Sequence[NDArray], call: Call) -> list[NDArray]:
    """Return the results of an allgather."""
    sizes = [(arrays.shape_of(tensor) or (0,))[0] for tensor in tensors]

    def backward(gradients: Sequence[NDArray]) -> list[NDArray]:
        reduced = _calls.allreduce(gradients, call.for_gradient(op=Average))
        rows = numbers_of_all(sizes, call.process_set, call.for_gradient("rows").name)
        return own_rows(reduced, sizes, rows, call.process_set)

    return _differentiated(tensors, lambda inputs: _calls.allgather(inputs, call), backward)


def alltoall(tensor: NDArray, splits: Any, call: Call) -> tuple[NDArray, list[int]]:
    """Return the result of an alltoall, and the number of rows from each rank."""
    received: list[int] = []

    def forward(inputs: Sequence[NDArray]) -> list[NDArray]:
        output, counts = _calls.alltoall(inputs[0], splits, call)
        received[:] = counts
        return [output]

    def backward(gradients: Sequence[NDArray]) -> list[NDArray]:
        return [_calls.alltoall(gradients[0], received, call.for_gradient())[0]]

    return _differentiated([tensor], forward, backward)[0], received
