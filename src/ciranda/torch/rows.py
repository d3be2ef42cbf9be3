"""The collectives on torch tensors that cut tensors along dimension 0: alltoall and reducescatter.

What `ciranda.torch.ops` says of tensors, names, gradients and errors holds here too. Names, arguments and defaults are
those of `horovod.torch`; `grouped_alltoall` is Ciranda's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import torch

from ciranda import _basics, _core
from ciranda._ops import (
    ALLTOALL,
    REDUCESCATTER,
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
from ciranda.process_sets import ProcessSet, global_process_set, id_of
from ciranda.torch import rows_autograd
from ciranda.torch.compression import Compression, Compressor
from ciranda.torch.tensors import (
    all_contiguous,
    all_for_engine,
    bring_all_back,
    contiguous,
    for_engine,
    like_input,
    like_inputs,
    needs_gradient,
)

Tensor = torch.Tensor
Tensors = list[torch.Tensor]
#: How many rows go to each rank.
Splits = torch.Tensor | Sequence[int]
#: What came, and how many rows from each rank.
Received = tuple[torch.Tensor, torch.Tensor]


def splits_list(splits: Splits) -> list[int]:
    """Return the splits of a tensor as the engine takes them. Raises InvalidArgumentError unless they are numbers."""
    tensor = torch.as_tensor(splits)
    is_whole = not (tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.dtype == torch.bool)
    if tensor.ndim != 1 or tensor.numel() == 0 or not is_whole:
        raise InvalidArgumentError(
            f"splits must be whole numbers, one for each rank; got {tensor.dtype} of shape {list(tensor.shape)}"
        )
    numbers: list[int] = tensor.tolist()
    return numbers


# --- reducescatter


def _share_memory(one: Tensor, other: Tensor) -> bool:
    begin, end = one.data_ptr(), one.data_ptr() + one.nbytes
    return begin < other.data_ptr() + other.nbytes and other.data_ptr() < end


def grouped_reducescatter_async(
    tensors: Sequence[Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
    outputs: Sequence[Tensor] | None = None,
) -> Handle[Tensors]:
    """Start `grouped_reducescatter()`. `synchronize(handle)` returns the list of results."""
    work = all_contiguous(tensors)
    results = None if outputs is None else apart_from(work, all_contiguous(outputs), _share_memory)
    operation = submit_reduction(
        REDUCESCATTER,
        all_for_engine(work),
        None if results is None else all_for_engine(results),
        name,
        choose_op(op, None),
        prescale_factor,
        postscale_factor,
        process_set,
        divisor,
    )

    def finish(done: _core.Operation) -> Tensors:
        if results is not None and outputs is not None:
            return bring_all_back(results, outputs)
        return like_inputs(done.outputs(), work)

    return Handle(operation, finish)


def grouped_reducescatter(
    tensors: Sequence[Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
) -> Tensors:
    """`reducescatter()` of several tensors as one operation: all or none. They may differ in shape and dtype."""
    pairs = [compression.compress(tensor) for tensor in tensors]
    compressed = [tensor for tensor, _ in pairs]
    call = (name, op, process_set, prescale_factor, postscale_factor, divisor)
    if needs_gradient(compressed):
        results = rows_autograd.grouped_reducescatter(compressed, *call)
    else:
        results = grouped_reducescatter_async(compressed, *call).wait()
    return [compression.decompress(result, context) for result, (_, context) in zip(results, pairs, strict=True)]


def reducescatter_async(
    tensor: Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
    output: Tensor | None = None,
) -> Handle[Tensor]:
    """Start `reducescatter()`. `synchronize(handle)` returns the result.

    Before that do not write to `tensor`, and neither read nor write `output`, which autograd does not follow.
    """
    group = grouped_reducescatter_async(
        [tensor],
        name,
        op,
        process_set,
        prescale_factor,
        postscale_factor,
        divisor,
        None if output is None else [output],
    )
    return group.then(lambda results: results[0])


def reducescatter(
    tensor: Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
    output: Tensor | None = None,
) -> Tensor:
    """Combine `tensor` over all ranks, element by element, and return this rank's share of the rows.

    The rows (along dimension 0) are shared out in rank order: the same number to each rank, and one more to each of the
    first `rows mod size()`. They are bit for bit the rows that `allreduce()` would give.

    Args:
        tensor: the same shape and dtype on every rank, with at least one dimension.
        name: see the module.
        compression: what to send, as Compression.none or Compression.fp16 or a class of your own.
        op: Average (the default), or any other that `allreduce()` takes. Average and Sum have a gradient: every rank's
            gradient of its share, put together in rank order and scaled by both factors, and for Sum by size().
        process_set: the ranks that take part; all, if not given.
        prescale_factor: multiplies every input before they are combined.
        postscale_factor: multiplies the result.
        divisor: of an average, as for `allreduce()`.
        output: a tensor of the shape and dtype of the result, which it gets and which is returned; by default a new
            one. It has no gradient.

    Raises:
        InvalidArgumentError: `output` has another shape or dtype, or lies in `tensor`, or comes with a compression or
            a `tensor` that needs a gradient.
    """
    is_plain = compression is Compression.none and not needs_gradient([tensor] if output is None else [tensor, output])
    if output is None and not is_plain:
        return grouped_reducescatter(
            [tensor], name, compression, op, process_set, prescale_factor, postscale_factor, divisor
        )[0]
    if not is_plain:
        raise InvalidArgumentError("a reducescatter into an output has neither compression nor gradient; detach first")
    work = contiguous(tensor)
    result = None if output is None else apart_from([work], [contiguous(output)], _share_memory)
    chosen = choose_op(op, None)
    results = _basics.engine().run(
        REDUCESCATTER,
        for_engine(work),
        None if result is None else for_engine(result[0]),
        name,
        chosen,
        -1,
        prescale_factor,
        postscale_factor,
        process_set=id_of(process_set),
        divides_by_all=divides_by_all(divisor, chosen, None),
    )
    if result is None or output is None:
        return like_input(results[0], work)
    return bring_all_back(result, [output])[0]


# --- alltoall


def grouped_alltoall_async(
    tensors: Sequence[Tensor],
    splits: Sequence[Splits | None] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[list[Received]]:
    """Start `grouped_alltoall()`. `synchronize(handle)` returns the list of pairs."""
    work = all_contiguous(tensors)
    inputs = all_for_engine(work)
    numbers = lists_of_splits(len(work), splits, splits_list)
    operation = submit_move(ALLTOALL, inputs, None, name, process_set, splits=numbers)

    def finish(done: _core.Operation) -> list[Received]:
        outputs: list[Any] = done.outputs()
        received = [torch.as_tensor(counts) for counts in outputs[len(work) :]]
        return [(like_input(outputs[i], tensor), received[i]) for i, tensor in enumerate(work)]

    return Handle(operation, finish)


def grouped_alltoall(
    tensors: Sequence[Tensor],
    splits: Sequence[Splits | None] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Received]:
    """`alltoall()` of several tensors as one operation: all of them or none.

    `splits` has an entry for each tensor. Returns a pair for each: what came, and the number of rows from each rank, an
    int64 tensor.
    """
    if needs_gradient(tensors):
        return rows_autograd.grouped_alltoall(tensors, splits, name, process_set)
    return grouped_alltoall_async(tensors, splits, name, process_set).wait()


def _like_splits(counts: Tensor, splits: Splits) -> Tensor:
    return counts.to(splits.dtype if isinstance(splits, torch.Tensor) else torch.int32)


@overload
def alltoall_async(
    tensor: Tensor, splits: None = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Tensor]: ...


@overload
def alltoall_async(
    tensor: Tensor, splits: Splits, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Received]: ...


def alltoall_async(
    tensor: Tensor,
    splits: Splits | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[Tensor] | Handle[Received]:
    """Start `alltoall()`. `synchronize(handle)` returns the result. Do not write to `tensor` before that."""
    group = grouped_alltoall_async([tensor], [splits], name, process_set)
    if splits is None:
        return group.then(lambda results: results[0][0])
    return group.then(lambda results: (results[0][0], _like_splits(results[0][1], splits)))


@overload
def alltoall(
    tensor: Tensor, splits: None = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor: ...


@overload
def alltoall(
    tensor: Tensor, splits: Splits, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Received: ...


def alltoall(
    tensor: Tensor,
    splits: Splits | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor | Received:
    """Send other rows of `tensor` (along dimension 0) to each rank; return those that came, in the order of the ranks.

    Args:
        tensor: at least one dimension. Ranks may differ in the size of dimension 0, and in nothing else.
        splits: how many rows go to each rank, first those to rank 0: size() whole numbers, as a tensor or a list, that
            add up to the first dimension. They may differ between ranks and with every call. None: the same number to
            each, which must divide the first dimension.
        name: see the module.
        process_set: the ranks that take part; all, if not given.

    Returns:
        The received tensor; where `splits` is given, a pair of it and the number of rows received from each rank, of
        the dtype of `splits`, and int32 where that is a list. The gradient goes back the way that the rows came.
    """
    output, counts = grouped_alltoall([tensor], [splits], name, process_set)[0]
    return output if splits is None else (output, _like_splits(counts, splits))


def grouped_alltoall_async_(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Tensors]:
    """Start `grouped_alltoall_()`. `synchronize(handle)` returns the list of the same tensors."""
    work = all_contiguous(tensors)
    targets = all_for_engine(work)
    operation = submit_move(ALLTOALL, targets, targets, name, process_set)
    return Handle(operation, lambda _: bring_all_back(work, tensors))


def grouped_alltoall_(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensors:
    """`alltoall_()` of several tensors as one operation: all of them or none. Returns them."""
    return grouped_alltoall_async_(tensors, name, process_set).wait()


def alltoall_async_(
    tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Tensor]:
    """Start `alltoall_()`. Neither read nor write `tensor` before `synchronize(handle)`, which returns it."""
    return grouped_alltoall_async_([tensor], name, process_set).then(lambda results: results[0])


def alltoall_(tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set) -> Tensor:
    """`alltoall()` in place, of equal parts: each part of `tensor` goes to its rank, and that rank's takes its place.

    Args:
        tensor: as many rows on all ranks, and a number that the number of ranks divides.
        name: see the module.
        process_set: the ranks that take part; all, if not given.

    Returns:
        `tensor`.

    Raises:
        InvalidArgumentError: it cannot be cut in equal parts.
        MismatchError: another rank's has other numbers of rows; or ranks have joined.
    """
    work = contiguous(tensor)
    target = for_engine(work)
    _basics.engine().run(ALLTOALL, target, target, name, Sum, -1, 1.0, 1.0, process_set=id_of(process_set))
    return bring_all_back([work], [tensor])[0]
