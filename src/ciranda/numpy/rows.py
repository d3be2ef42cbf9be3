"""The collectives on NumPy arrays that cut arrays along dimension 0, or give the result to one rank only.

What `ciranda.numpy.ops` says of tensors, names and errors holds here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from ciranda import _basics, _core
from ciranda._ops import (
    ALLTOALL,
    GATHER,
    REDUCE,
    REDUCESCATTER,
    SCATTER,
    Average,
    Divisor,
    Handle,
    Sum,
    apart_from,
    choose_op,
    divides_by_all,
    lists_of_splits,
    submit_move,
    submit_reduction,
)
from ciranda.errors import InvalidArgumentError
from ciranda.numpy.arrays import (
    Array,
    bring_all_back,
    for_engine,
    like_input,
    like_inputs,
    readable,
    writable,
)
from ciranda.process_sets import ProcessSet, global_process_set, id_of

Arrays = list[Array]


def _splits_list(splits: npt.ArrayLike) -> list[int]:
    array = np.asarray(splits)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise InvalidArgumentError(
            f"splits must be whole numbers, one for each rank; got {array.dtype} of shape {list(array.shape)}"
        )
    numbers: list[int] = array.tolist()
    return numbers


# --- reducescatter


def grouped_reducescatter_async(
    tensors: Sequence[npt.ArrayLike],
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
    outputs: Sequence[Array] | None = None,
) -> Handle[Arrays]:
    """Start `grouped_reducescatter()`. `synchronize(handle)` returns the list of results."""
    arrays = [readable(tensor) for tensor in tensors]
    work = None if outputs is None else apart_from(arrays, [writable(it) for it in outputs], np.may_share_memory)
    operation = submit_reduction(
        REDUCESCATTER,
        [for_engine(array) for array in arrays],
        None if work is None else [for_engine(array) for array in work],
        name,
        choose_op(op, None),
        prescale_factor,
        postscale_factor,
        process_set,
        divisor,
    )

    def finish(done: _core.Operation) -> Arrays:
        if work is not None and outputs is not None:
            return bring_all_back(work, outputs)
        return like_inputs(done.outputs(), arrays)

    return Handle(operation, finish)


def grouped_reducescatter(
    tensors: Sequence[npt.ArrayLike],
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
    outputs: Sequence[Array] | None = None,
) -> Arrays:
    """`reducescatter()` of several arrays as one operation: all of them or none. They may differ in shape and dtype.

    `outputs`, if given, has an array for each, and is what is returned.
    """
    return grouped_reducescatter_async(
        tensors, op, name, process_set, prescale_factor, postscale_factor, divisor, outputs
    ).wait()


def reducescatter_async(
    tensor: npt.ArrayLike,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
    output: Array | None = None,
) -> Handle[Array]:
    """Start `reducescatter()`. `synchronize(handle)` returns the result.

    Before that do not write to `tensor`, and neither read nor write `output`.
    """
    outputs = None if output is None else [output]
    group = grouped_reducescatter_async(
        [tensor], op, name, process_set, prescale_factor, postscale_factor, divisor, outputs
    )
    return group.then(lambda results: results[0])


def reducescatter(
    tensor: npt.ArrayLike,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
    output: Array | None = None,
) -> Array:
    """Combine `tensor` over all ranks, element by element, and return this rank's share of the rows.

    The rows (along dimension 0) are shared out in rank order: the same number to each rank, and one more to each of the
    first `rows mod size()`. They are bit for bit the rows that `allreduce()` would give.

    Args:
        tensor: the same shape and dtype on every rank, with at least one dimension.
        op: Average (the default), or any other that `allreduce()` takes.
        name: see the module.
        process_set: the ranks that take part; all, if not given.
        prescale_factor: multiplies every input before they are combined.
        postscale_factor: multiplies the result.
        divisor: of an average, as for `allreduce()`.
        output: an array of the shape and dtype of the result, which it gets and which is returned; by default a new
            one. It must have no memory in common with `tensor`. Some ranks may give one and others not.

    Raises:
        InvalidArgumentError: `output` has another shape or dtype, is read-only, or lies in `tensor`.
    """
    array = readable(tensor)
    work = None if output is None else apart_from([array], [writable(output)], np.may_share_memory)
    chosen = choose_op(op, None)
    results = _basics.engine().run(
        REDUCESCATTER,
        for_engine(array),
        None if work is None else for_engine(work[0]),
        name,
        chosen,
        -1,
        prescale_factor,
        postscale_factor,
        process_set=id_of(process_set),
        divides_by_all=divides_by_all(divisor, chosen, None),
    )
    if work is None or output is None:
        return like_input(results[0], array)
    return bring_all_back(work, [output])[0]


# --- alltoall


def grouped_alltoall_async(
    tensors: Sequence[npt.ArrayLike],
    splits: Sequence[npt.ArrayLike | None] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[list[tuple[Array, Array]]]:
    """Start `grouped_alltoall()`. `synchronize(handle)` returns the list of pairs."""
    arrays = [readable(tensor) for tensor in tensors]
    inputs = [for_engine(array) for array in arrays]
    numbers = lists_of_splits(len(tensors), splits, _splits_list)
    operation = submit_move(ALLTOALL, inputs, None, name, process_set, splits=numbers)

    def finish(done: _core.Operation) -> list[tuple[Array, Array]]:
        outputs = done.outputs()
        n = len(arrays)
        return [(like_input(outputs[i], arrays[i]), outputs[n + i]) for i in range(n)]

    return Handle(operation, finish)


def grouped_alltoall(
    tensors: Sequence[npt.ArrayLike],
    splits: Sequence[npt.ArrayLike | None] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[tuple[Array, Array]]:
    """`alltoall()` of several arrays as one operation: all of them or none.

    `splits` has an entry for each array. Returns a pair for each: the received array, and the number of rows received
    from each rank.
    """
    return grouped_alltoall_async(tensors, splits, name, process_set).wait()


@overload
def alltoall_async(
    tensor: npt.ArrayLike, splits: None = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Array]: ...


@overload
def alltoall_async(
    tensor: npt.ArrayLike,
    splits: npt.ArrayLike,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[tuple[Array, Array]]: ...


def alltoall_async(
    tensor: npt.ArrayLike,
    splits: npt.ArrayLike | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[Array] | Handle[tuple[Array, Array]]:
    """Start `alltoall()`. `synchronize(handle)` returns the result. Do not write to `tensor` before that."""
    group = grouped_alltoall_async([tensor], [splits], name, process_set)
    if splits is None:
        return group.then(lambda results: results[0][0])
    kind = np.asarray(splits).dtype

    def finish(results: list[tuple[Array, Array]]) -> tuple[Array, Array]:
        output, received = results[0]
        return output, received.astype(kind, copy=False)

    return group.then(finish)


@overload
def alltoall(
    tensor: npt.ArrayLike, splits: None = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Array: ...


@overload
def alltoall(
    tensor: npt.ArrayLike,
    splits: npt.ArrayLike,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> tuple[Array, Array]: ...


def alltoall(
    tensor: npt.ArrayLike,
    splits: npt.ArrayLike | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Array | tuple[Array, Array]:
    """Send other rows of `tensor` (along dimension 0) to each rank; return those that came, in the order of the ranks.

    Args:
        tensor: at least one dimension. Ranks may differ in the size of dimension 0, and in nothing else.
        splits: how many rows go to each rank of the set, in rank order: whole numbers that add up to the first
            dimension. They may differ between ranks and with every call. None: the same number to each, which must
            divide the first dimension.
        name: see the module.
        process_set: the ranks that take part; all, if not given.

    Returns:
        The received array; where `splits` is given, a pair of it and the number of rows received from each rank, of the
        dtype of `splits`.
    """
    return alltoall_async(tensor, splits, name, process_set).wait()


def grouped_alltoall_async_(
    tensors: Sequence[Array], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Arrays]:
    """Start `grouped_alltoall_()`. `synchronize(handle)` returns the list of the same arrays."""
    work = [writable(tensor) for tensor in tensors]
    targets = [for_engine(array) for array in work]
    operation = submit_move(ALLTOALL, targets, targets, name, process_set)
    return Handle(operation, lambda _: bring_all_back(work, tensors))


def grouped_alltoall_(
    tensors: Sequence[Array], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Arrays:
    """`alltoall_()` of several arrays as one operation: all of them or none. Returns them."""
    return grouped_alltoall_async_(tensors, name, process_set).wait()


def alltoall_async_(
    tensor: Array, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Array]:
    """Start `alltoall_()`. Neither read nor write `tensor` before `synchronize(handle)`, which returns it."""
    return grouped_alltoall_async_([tensor], name, process_set).then(lambda results: results[0])


def alltoall_(tensor: Array, name: str | None = None, process_set: ProcessSet = global_process_set) -> Array:
    """`alltoall()` in place, of equal parts: each part of `tensor` goes to its rank, and that rank's takes its place.

    Args:
        tensor: as many rows on all ranks, and a number that the number of ranks divides; writable.
        name: see the module.
        process_set: the ranks that take part; all, if not given.

    Returns:
        `tensor`.

    Raises:
        InvalidArgumentError: it cannot be cut in equal parts, or is read-only.
        MismatchError: another rank's has other numbers of rows; or ranks have joined.
    """
    work = writable(tensor)
    target = for_engine(work)
    _basics.engine().run(ALLTOALL, target, target, name, Sum, -1, 1.0, 1.0, process_set=id_of(process_set))
    return bring_all_back([work], [tensor])[0]


# --- reduce


def grouped_reduce_async(
    tensors: Sequence[npt.ArrayLike],
    root_rank: int,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
) -> Handle[Arrays | None]:
    """Start `grouped_reduce()`. `synchronize(handle)` returns the list of results on the root, None elsewhere."""
    arrays = [readable(tensor) for tensor in tensors]
    is_root = _basics.rank() == root_rank
    results = [np.empty_like(array, subok=False) for array in arrays] if is_root else None
    operation = submit_reduction(
        REDUCE,
        [for_engine(array) for array in arrays],
        None if results is None else [for_engine(result) for result in results],
        name,
        choose_op(op, None),
        prescale_factor,
        postscale_factor,
        process_set,
        divisor,
        root=root_rank,
    )
    return Handle(operation, lambda _: results)


def grouped_reduce(
    tensors: Sequence[npt.ArrayLike],
    root_rank: int,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
) -> Arrays | None:
    """`reduce()` of several arrays as one operation: all of them or none. They may differ in shape and dtype."""
    return grouped_reduce_async(
        tensors, root_rank, op, name, process_set, prescale_factor, postscale_factor, divisor
    ).wait()


def reduce_async(
    tensor: npt.ArrayLike,
    root_rank: int,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
) -> Handle[Array | None]:
    """Start `reduce()`. `synchronize(handle)` returns the result. Do not write to `tensor` before that."""
    group = grouped_reduce_async([tensor], root_rank, op, name, process_set, prescale_factor, postscale_factor, divisor)
    return group.then(lambda results: None if results is None else results[0])


def reduce(
    tensor: npt.ArrayLike,
    root_rank: int,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
) -> Array | None:
    """Combine `tensor` over all ranks for one of them: what `allreduce()` gives on rank `root_rank`, None elsewhere.

    Args:
        tensor: the same shape and dtype on every rank.
        root_rank: the rank that gets the result; the same on every rank.
        op: Average (the default), or any other that `allreduce()` takes.
        name: see the module.
        process_set: the ranks that take part; all, if not given.
        prescale_factor: multiplies every input before they are combined.
        postscale_factor: multiplies the result.
        divisor: of an average, as for `allreduce()`.
    """
    return reduce_async(tensor, root_rank, op, name, process_set, prescale_factor, postscale_factor, divisor).wait()


def grouped_reduce_async_(
    tensors: Sequence[Array],
    root_rank: int,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
) -> Handle[Arrays]:
    """Start `grouped_reduce_()`. `synchronize(handle)` returns the list of the same arrays."""
    work = [writable(tensor) for tensor in tensors]
    targets = [for_engine(array) for array in work]
    operation = submit_reduction(
        REDUCE,
        targets,
        targets if _basics.rank() == root_rank else None,
        name,
        choose_op(op, None),
        prescale_factor,
        postscale_factor,
        process_set,
        divisor,
        root=root_rank,
    )
    return Handle(operation, lambda _: bring_all_back(work, tensors))


def grouped_reduce_(
    tensors: Sequence[Array],
    root_rank: int,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
) -> Arrays:
    """`grouped_reduce()` in place: the root's arrays get the results. Returns the list of the same arrays."""
    return grouped_reduce_async_(
        tensors, root_rank, op, name, process_set, prescale_factor, postscale_factor, divisor
    ).wait()


def reduce_async_(
    tensor: Array,
    root_rank: int,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
) -> Handle[Array]:
    """Start `reduce_()`. Do not write to `tensor` before `synchronize(handle)`, which returns it."""
    group = grouped_reduce_async_(
        [tensor], root_rank, op, name, process_set, prescale_factor, postscale_factor, divisor
    )
    return group.then(lambda results: results[0])


def reduce_(
    tensor: Array,
    root_rank: int,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
) -> Array:
    """`reduce()` in place: the root's `tensor` gets the result, the others' stay as they are. Returns `tensor`.

    Raises InvalidArgumentError for a read-only array, on every rank.
    """
    return reduce_async_(tensor, root_rank, op, name, process_set, prescale_factor, postscale_factor, divisor).wait()


# --- gather and scatter


def grouped_gather_async(
    tensors: Sequence[npt.ArrayLike],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[Arrays | None]:
    """Start `grouped_gather()`. `synchronize(handle)` returns the list of results on the root, None elsewhere."""
    arrays = [readable(tensor) for tensor in tensors]
    inputs = [for_engine(array) for array in arrays]
    operation = submit_move(GATHER, inputs, None, name, process_set, root_rank)
    is_root = _basics.rank() == root_rank
    return Handle(operation, lambda done: like_inputs(done.outputs(), arrays) if is_root else None)


def grouped_gather(
    tensors: Sequence[npt.ArrayLike],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Arrays | None:
    """`gather()` of several arrays as one operation: all of them or none."""
    return grouped_gather_async(tensors, root_rank, name, process_set).wait()


def gather_async(
    tensor: npt.ArrayLike,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[Array | None]:
    """Start `gather()`. `synchronize(handle)` returns the result. Do not write to `tensor` before that."""
    group = grouped_gather_async([tensor], root_rank, name, process_set)
    return group.then(lambda results: None if results is None else results[0])


def gather(
    tensor: npt.ArrayLike,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Array | None:
    """Join the arrays of all ranks along dimension 0 for one of them: what `allgather()` gives there, None elsewhere.

    Ranks may differ in the size of dimension 0, and in nothing else. Raises InvalidArgumentError for a 0-d array.
    """
    return gather_async(tensor, root_rank, name, process_set).wait()


def grouped_scatter_async(
    tensors: Sequence[npt.ArrayLike],
    root_rank: int,
    splits: Sequence[npt.ArrayLike | None] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[Arrays]:
    """Start `grouped_scatter()`. `synchronize(handle)` returns the list of results."""
    arrays = [readable(tensor) for tensor in tensors]
    inputs = [for_engine(array) for array in arrays]
    numbers = lists_of_splits(len(tensors), splits, _splits_list) if _basics.rank() == root_rank else None
    operation = submit_move(SCATTER, inputs, None, name, process_set, root_rank, numbers)
    return Handle(operation, lambda done: like_inputs(done.outputs(), arrays))


def grouped_scatter(
    tensors: Sequence[npt.ArrayLike],
    root_rank: int,
    splits: Sequence[npt.ArrayLike | None] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Arrays:
    """`scatter()` of several arrays as one operation: all of them or none. `splits` has an entry for each."""
    return grouped_scatter_async(tensors, root_rank, splits, name, process_set).wait()


def scatter_async(
    tensor: npt.ArrayLike,
    root_rank: int,
    splits: npt.ArrayLike | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[Array]:
    """Start `scatter()`. `synchronize(handle)` returns the result. Do not write to `tensor` before that."""
    group = grouped_scatter_async([tensor], root_rank, [splits], name, process_set)
    return group.then(lambda results: results[0])


def scatter(
    tensor: npt.ArrayLike,
    root_rank: int,
    splits: npt.ArrayLike | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Share out the rows of rank `root_rank`'s array (along dimension 0), in rank order; return this rank's.

    Args:
        tensor: on the root, the rows. Elsewhere an array of the same dtype and the same dimensions but the first, of
            which nothing else is looked at: `numpy.empty((0, 3), numpy.float32)` receives rows of three float32.
        root_rank: the rank that has the rows; the same on every rank.
        splits: on the root, how many rows go to each rank of the set: whole numbers that add up to the first dimension.
            Not looked at elsewhere. None: the same number to each rank, and one more to each of the first
            `rows mod size()`.
        name: see the module.
        process_set: the ranks that take part; all, if not given.
    """
    return scatter_async(tensor, root_rank, splits, name, process_set).wait()
