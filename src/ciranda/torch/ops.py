"""The collectives on torch tensors. Names, arguments and defaults are those of `horovod.torch`.

Tensors live in CPU memory, have any shape (0-d and empty included) and a dtype that the engine knows: bool, the
integers of 8 to 64 bits, float16, bfloat16, float32, float64, complex64, complex128. Tensors need not be contiguous; a
non-contiguous one is copied, and an in-place result is copied back by `synchronize()`.

`name` identifies the call across ranks: all ranks must use the same one. Without names, all ranks must make the same
calls in the same order.

The blocking forms that return a new tensor (allreduce, allgather, broadcast, and the grouped ones) are differentiable:
see `ciranda.torch.autograd`. The asynchronous and in-place forms are not.

Every call may raise, besides what stands with it: NotInitializedError; InvalidArgumentError for a dtype, operation or
factor that cannot be; and, from the blocking form or from `synchronize()`, MismatchError when ranks disagree about
shape, dtype, operation, root, factors or kind of collective, RanksLostError when a rank has died, AbortedError when the
circle was shut down.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ciranda import _basics
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
from ciranda.process_sets import ProcessSet, global_process_set, id_of
from ciranda.torch import autograd
from ciranda.torch.compression import Compression, Compressor
from ciranda.torch.tensors import (
    all_contiguous,
    all_for_engine,
    bring_all_back,
    bring_back,
    contiguous,
    empty_like,
    for_engine,
    like_input,
    like_inputs,
    needs_gradient,
)

Tensor = torch.Tensor
Tensors = list[torch.Tensor]


def allreduce_async(
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
    """Start `allreduce()`. `synchronize(handle)` returns the result. Do not write to `tensor` before that.

    Of what is ready on all ranks, what has a higher `priority` is carried out first; all ranks should give the same.
    """
    work = contiguous(tensor)
    output = empty_like(work)
    operation = submit_reduction(
        ALLREDUCE,
        for_engine(work),
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
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    weight: float | None = None,
    divisor: Divisor = "contributors",
) -> Tensor:
    """Combine `tensor` over all ranks, element by element; every rank gets the same new tensor.

    Args:
        tensor: the same shape and dtype on every rank.
        average: deprecated, use `op`.
        name: see the module.
        compression: what to send, as Compression.none or Compression.fp16 or a class of your own.
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
    chosen = choose_op(op, average)
    compressed, context = compression.compress(tensor)
    if needs_gradient((compressed,)):
        reduction = autograd.Reduction(chosen, prescale_factor, postscale_factor, process_set, weight, divisor)
        reduced = autograd.grouped_allreduce([compressed], name, reduction)[0]
    else:
        work = contiguous(compressed)
        reduced = empty_like(work)
        _basics.engine().run(
            ALLREDUCE,
            for_engine(work),
            for_engine(reduced),
            name,
            chosen,
            -1,
            prescale_factor,
            postscale_factor,
            process_set=id_of(process_set),
            weight=weight,
            divides_by_all=divides_by_all(divisor, chosen, weight),
        )
    return compression.decompress(reduced, context)


def allreduce_async_(
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
    work = contiguous(tensor)
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
    """Like `allreduce()`, in place. Returns `tensor`."""
    work = contiguous(tensor)
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
) -> Handle[Tensors]:
    """Start `grouped_allreduce()`. `synchronize(handle)` returns the list of results."""
    work = all_contiguous(tensors)
    outputs = [empty_like(tensor) for tensor in work]
    operation = submit_reduction(
        ALLREDUCE,
        all_for_engine(work),
        all_for_engine(outputs),
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
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    weight: float | None = None,
    divisor: Divisor = "contributors",
) -> Tensors:
    """`allreduce()` of several tensors as one operation: all of them or none. They may differ in shape and dtype."""
    chosen = choose_op(op, average)
    pairs = [compression.compress(tensor) for tensor in tensors]
    compressed = [tensor for tensor, _ in pairs]
    if needs_gradient(compressed):
        reduction = autograd.Reduction(chosen, prescale_factor, postscale_factor, process_set, weight, divisor)
        reduced = autograd.grouped_allreduce(compressed, name, reduction)
    else:
        reduced = grouped_allreduce_async(
            compressed, None, name, chosen, prescale_factor, postscale_factor, process_set, weight, divisor
        ).wait()
    return [compression.decompress(tensor, context) for tensor, (_, context) in zip(reduced, pairs, strict=True)]


def grouped_allreduce_async_(
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
) -> Handle[Tensors]:
    """Start `grouped_allreduce_()`. `synchronize(handle)` returns the list of the same tensors."""
    work = all_contiguous(tensors)
    targets = all_for_engine(work)
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
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    weight: float | None = None,
    divisor: Divisor = "contributors",
) -> Tensors:
    """`grouped_allreduce()` in place."""
    return grouped_allreduce_async_(
        tensors, average, name, op, prescale_factor, postscale_factor, process_set, weight, divisor
    ).wait()


def allgather_async(
    tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Tensor]:
    """Start `allgather()`. `synchronize(handle)` returns the result."""
    work = contiguous(tensor)
    operation = submit_move(ALLGATHER, for_engine(work), None, name, process_set)
    return Handle(operation, lambda done: like_input(done.outputs()[0], work))


def allgather(tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set) -> Tensor:
    """Join the tensors of all ranks along dimension 0, in rank order; every rank gets the same new tensor.

    Ranks may differ in the size of dimension 0, and in nothing else. Raises InvalidArgumentError for a 0-d tensor.
    """
    if needs_gradient((tensor,)):
        return autograd.allgather(tensor, name, process_set)
    work = contiguous(tensor)
    outputs = _basics.engine().run(
        ALLGATHER, for_engine(work), None, name, Sum, -1, 1.0, 1.0, process_set=id_of(process_set)
    )
    return like_input(outputs[0], work)


def grouped_allgather_async(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Tensors]:
    """Start `grouped_allgather()`. `synchronize(handle)` returns the list of results."""
    work = all_contiguous(tensors)
    inputs = all_for_engine(work)
    operation = submit_move(ALLGATHER, inputs, None, name, process_set)
    return Handle(operation, lambda done: like_inputs(done.outputs(), work))


def grouped_allgather(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensors:
    """`allgather()` of several tensors as one operation: all of them or none."""
    if needs_gradient(tensors):
        return autograd.grouped_allgather(tensors, name, process_set)
    return grouped_allgather_async(tensors, name, process_set).wait()


def broadcast_async(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Tensor]:
    """Start `broadcast()`. `synchronize(handle)` returns the result."""
    work = contiguous(tensor)
    output = empty_like(work)
    operation = submit_move(BROADCAST, for_engine(work), for_engine(output), name, process_set, root_rank)
    return Handle(operation, lambda _: output)


def broadcast(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """Return the tensor of rank `root_rank`, on every rank. All ranks must give the same shape, dtype and root."""
    if needs_gradient((tensor,)):
        return autograd.broadcast(tensor, root_rank, name, process_set)
    return broadcast_async(tensor, root_rank, name, process_set).wait()


def broadcast_async_(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Tensor]:
    """Start `broadcast_()`. Neither read nor write `tensor` before `synchronize(handle)`, which returns it."""
    work = contiguous(tensor)
    target = for_engine(work)
    operation = submit_move(BROADCAST, target, target, name, process_set, root_rank)
    return InPlaceHandle(operation, bring_back, work, tensor)


def broadcast_(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """`broadcast()` in place. Returns `tensor`."""
    return broadcast_async_(tensor, root_rank, name, process_set).wait()


def grouped_broadcast_async(
    tensors: Sequence[Tensor], root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Tensors]:
    """Start `grouped_broadcast()`. `synchronize(handle)` returns the list of results."""
    work = all_contiguous(tensors)
    outputs = [empty_like(tensor) for tensor in work]
    sources, targets = (all_for_engine(each) for each in (work, outputs))
    operation = submit_move(BROADCAST, sources, targets, name, process_set, root_rank)
    return Handle(operation, lambda _: outputs)


def grouped_broadcast(
    tensors: Sequence[Tensor], root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensors:
    """`broadcast()` of several tensors as one operation: all of them or none. They may differ in shape and dtype."""
    if needs_gradient(tensors):
        return autograd.grouped_broadcast(tensors, root_rank, name, process_set)
    return grouped_broadcast_async(tensors, root_rank, name, process_set).wait()


def grouped_broadcast_async_(
    tensors: Sequence[Tensor], root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Tensors]:
    """Start `grouped_broadcast_()`. `synchronize(handle)` returns the list of the same tensors."""
    work = all_contiguous(tensors)
    targets = all_for_engine(work)
    operation = submit_move(BROADCAST, targets, targets, name, process_set, root_rank)
    return Handle(operation, lambda _: bring_all_back(work, tensors))


def grouped_broadcast_(
    tensors: Sequence[Tensor], root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensors:
    """`grouped_broadcast()` in place."""
    return grouped_broadcast_async_(tensors, root_rank, name, process_set).wait()
