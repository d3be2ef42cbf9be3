"""The collectives on NumPy arrays.

In all of them `tensor` is an array (or, where nothing is written to it, anything that `numpy.asarray` takes) of any
shape, 0-d and empty included, whose dtype the engine knows: bool, signed and unsigned integers of 8 to 64 bits,
float16, float32, float64, complex64, complex128, and bfloat16 of the package ml_dtypes. Arrays need not be contiguous:
a non-contiguous one is copied, and an in-place result is copied back by `synchronize()`.

`name` identifies the call across ranks: all ranks must use the same one. Without names, all ranks must make the same
calls in the same order.

Every call may raise, besides what stands with it: NotInitializedError; InvalidArgumentError for a dtype, operation or
factor that cannot be; and, from the blocking form or from `synchronize()`, MismatchError when ranks disagree about
shape, dtype, operation, root, factors or kind of collective, RanksLostError when a rank has died, AbortedError when the
circle was shut down.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ciranda import _basics, _core
from ciranda._ops import (
    ALLGATHER,
    ALLREDUCE,
    BROADCAST,
    Divisor,
    Handle,
    InPlaceHandle,
    Sum,
    choose_op,
    divides_by_all,
    submit_move,
    submit_reduction,
)
from ciranda.numpy.arrays import (
    Array,
    bring_all_back,
    bring_back,
    for_engine,
    like_input,
    like_inputs,
    readable,
    writable,
)
from ciranda.process_sets import ProcessSet, global_process_set, id_of

Arrays = list[Array]


def allreduce_async(
    tensor: npt.ArrayLike,
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
) -> Handle[Array]:
    """Start `allreduce()`. `synchronize(handle)` returns the result. Do not write to `tensor` before that.

    Of what is ready on all ranks, what has a higher `priority` is carried out first; all ranks should give the same.
    """
    array = readable(tensor)
    output = np.empty_like(array, subok=False)
    operation = submit_reduction(
        ALLREDUCE,
        for_engine(array),
        for_engine(output),
        name,
        choose_op(op, average),
        prescale_factor,
        postscale_factor,
        process_set,
        divisor,
        weight,
        priority=priority,
    )
    return Handle(operation, lambda _: output)


def allreduce(
    tensor: npt.ArrayLike,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    weight: float | None = None,
    divisor: Divisor = "contributors",
) -> Array:
    """Combine `tensor` over all ranks, element by element; every rank gets the same new array.

    Args:
        tensor: the same shape and dtype on every rank.
        average: deprecated, use `op`.
        name: see the module.
        op: Average (the default), Sum, Min, Max or Product; BitwiseAnd, BitwiseOr or BitwiseXor of integers;
            LogicalAnd, LogicalOr or LogicalXor of bool; Adasum (adaptive summation, Maleki et al., 2021) of
            floating-point types, each tensor a vector of its own. Integer averages round toward zero.
        prescale_factor: multiplies every input before they are combined.
        postscale_factor: multiplies the result.
        process_set: the ranks that take part; all, if not given.
        weight: this rank's weight, 0 or more, in a weighted average: the sum of weight * tensor over the sum of the
            weights. Ranks may differ in it, and calls too. Only with op=Average, of floating-point or complex types.
        divisor: what an average divides by while some ranks have joined: "contributors", the number of ranks that take
            part; or "world", that of all ranks of the process set, as if the others brought zeros.
    """
    array = readable(tensor)
    output = np.empty_like(array, subok=False)
    chosen = choose_op(op, average)
    _basics.engine().run(
        ALLREDUCE,
        for_engine(array),
        for_engine(output),
        name,
        chosen,
        -1,
        prescale_factor,
        postscale_factor,
        None,
        id_of(process_set),
        weight,
        divides_by_all(divisor, chosen, weight),
    )
    return output


def allreduce_async_(
    tensor: Array,
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
) -> Handle[Array]:
    """Start `allreduce_()`. Neither read nor write `tensor` before `synchronize(handle)`, which returns it."""
    work = writable(tensor)
    target = for_engine(work)
    operation = submit_reduction(
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
    return InPlaceHandle(operation, bring_back, work, tensor)


def allreduce_(
    tensor: Array,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    weight: float | None = None,
    divisor: Divisor = "contributors",
) -> Array:
    """Like `allreduce()`, in place. Returns `tensor`. Raises InvalidArgumentError for a read-only array."""
    work = writable(tensor)
    target = for_engine(work)
    chosen = choose_op(op, average)
    _basics.engine().run(
        ALLREDUCE,
        target,
        target,
        name,
        chosen,
        -1,
        prescale_factor,
        postscale_factor,
        None,
        id_of(process_set),
        weight,
        divides_by_all(divisor, chosen, weight),
    )
    return bring_back(work, tensor)


def grouped_allreduce_async(
    tensors: Sequence[npt.ArrayLike],
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
) -> Handle[Arrays]:
    """Start `grouped_allreduce()`. `synchronize(handle)` returns the list of results."""
    arrays = [readable(tensor) for tensor in tensors]
    outputs = [np.empty_like(array, subok=False) for array in arrays]
    operation = submit_reduction(
        ALLREDUCE,
        [for_engine(array) for array in arrays],
        [for_engine(output) for output in outputs],
        name,
        choose_op(op, average),
        prescale_factor,
        postscale_factor,
        process_set,
        divisor,
        weight,
        priority=priority,
    )
    return Handle(operation, lambda _: outputs)


def grouped_allreduce(
    tensors: Sequence[npt.ArrayLike],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    weight: float | None = None,
    divisor: Divisor = "contributors",
) -> Arrays:
    """`allreduce()` of several arrays as one operation: all of them or none. They may differ in shape and dtype."""
    return grouped_allreduce_async(
        tensors, average, name, op, prescale_factor, postscale_factor, process_set, weight, divisor
    ).wait()


def grouped_allreduce_async_(
    tensors: Sequence[Array],
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
) -> Handle[Arrays]:
    """Start `grouped_allreduce_()`. `synchronize(handle)` returns the list of the same arrays."""
    work = [writable(tensor) for tensor in tensors]
    targets = [for_engine(array) for array in work]
    operation = submit_reduction(
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
    return Handle(operation, lambda _: bring_all_back(work, tensors))


def grouped_allreduce_(
    tensors: Sequence[Array],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    weight: float | None = None,
    divisor: Divisor = "contributors",
) -> Arrays:
    """`grouped_allreduce()` in place."""
    return grouped_allreduce_async_(
        tensors, average, name, op, prescale_factor, postscale_factor, process_set, weight, divisor
    ).wait()


def allgather_async(
    tensor: npt.ArrayLike, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Array]:
    """Start `allgather()`. `synchronize(handle)` returns the result."""
    array = readable(tensor)
    operation = submit_move(ALLGATHER, for_engine(array), None, name, process_set)
    return Handle(operation, lambda done: like_input(done.outputs()[0], array))


def allgather(tensor: npt.ArrayLike, name: str | None = None, process_set: ProcessSet = global_process_set) -> Array:
    """Join the arrays of all ranks along dimension 0, in rank order; every rank gets the same new array.

    Ranks may differ in the size of dimension 0, and in nothing else. Raises InvalidArgumentError for a 0-d array.
    """
    array = readable(tensor)
    outputs = _basics.engine().run(
        ALLGATHER, for_engine(array), None, name, Sum, -1, 1.0, 1.0, process_set=id_of(process_set)
    )
    return like_input(outputs[0], array)


def grouped_allgather_async(
    tensors: Sequence[npt.ArrayLike], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Arrays]:
    """Start `grouped_allgather()`. `synchronize(handle)` returns the list of results."""
    arrays = [readable(tensor) for tensor in tensors]
    inputs = [for_engine(array) for array in arrays]
    operation = submit_move(ALLGATHER, inputs, None, name, process_set)
    return Handle(operation, lambda done: like_inputs(done.outputs(), arrays))


def grouped_allgather(
    tensors: Sequence[npt.ArrayLike], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Arrays:
    """`allgather()` of several arrays as one operation: all of them or none."""
    return grouped_allgather_async(tensors, name, process_set).wait()


def broadcast_async(
    tensor: npt.ArrayLike, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Array]:
    """Start `broadcast()`. `synchronize(handle)` returns the result."""
    array = readable(tensor)
    output = np.empty_like(array, subok=False)
    operation = submit_move(BROADCAST, for_engine(array), for_engine(output), name, process_set, root_rank)
    return Handle(operation, lambda _: output)


def broadcast(
    tensor: npt.ArrayLike, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Array:
    """Return the array of rank `root_rank`, on every rank. All ranks must give the same shape, dtype and root."""
    return broadcast_async(tensor, root_rank, name, process_set).wait()


def broadcast_async_(
    tensor: Array, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Array]:
    """Start `broadcast_()`. Neither read nor write `tensor` before `synchronize(handle)`, which returns it."""
    work = writable(tensor)
    target = for_engine(work)
    operation = submit_move(BROADCAST, target, target, name, process_set, root_rank)
    return InPlaceHandle(operation, bring_back, work, tensor)


def broadcast_(
    tensor: Array, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Array:
    """`broadcast()` in place. Returns `tensor`. Raises InvalidArgumentError for a read-only array."""
    return broadcast_async_(tensor, root_rank, name, process_set).wait()


def grouped_broadcast_async(
    tensors: Sequence[npt.ArrayLike],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[Arrays]:
    """Start `grouped_broadcast()`. `synchronize(handle)` returns the list of results."""
    arrays = [readable(tensor) for tensor in tensors]
    outputs = [np.empty_like(array, subok=False) for array in arrays]
    operation = _submit_broadcasts(arrays, outputs, root_rank, name, process_set)
    return Handle(operation, lambda _: outputs)


def grouped_broadcast(
    tensors: Sequence[npt.ArrayLike],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Arrays:
    """`broadcast()` of several arrays at once: all or none of them. They may differ in shape and dtype."""
    return grouped_broadcast_async(tensors, root_rank, name, process_set).wait()


def grouped_broadcast_async_(
    tensors: Sequence[Array],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[Arrays]:
    """Start `grouped_broadcast_()`. `synchronize(handle)` returns the list of the same arrays."""
    work = [writable(tensor) for tensor in tensors]
    operation = _submit_broadcasts(work, work, root_rank, name, process_set)
    return Handle(operation, lambda _: bring_all_back(work, tensors))


def grouped_broadcast_(
    tensors: Sequence[Array],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Arrays:
    """`grouped_broadcast()` in place."""
    return grouped_broadcast_async_(tensors, root_rank, name, process_set).wait()


def _submit_broadcasts(
    inputs: Arrays, outputs: Arrays, root_rank: int, name: str | None, process_set: ProcessSet
) -> _core.Operation:
    sources = [for_engine(array) for array in inputs]
    targets = sources if outputs is inputs else [for_engine(array) for array in outputs]
    return submit_move(BROADCAST, sources, targets, name, process_set, root_rank)
