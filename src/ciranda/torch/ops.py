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

from ciranda import _basics, _core
from ciranda._ops import ALLGATHER, ALLREDUCE, BROADCAST, Handle, Sum, choose_op
from ciranda.process_sets import ProcessSet, global_process_set, require_global
from ciranda.torch import autograd
from ciranda.torch.compression import Compression, Compressor
from ciranda.torch.tensors import bring_back, contiguous, empty_like, for_engine, like_input, needs_gradient

Tensor = torch.Tensor
Tensors = list[torch.Tensor]


def _submit_allreduce(
    inputs: object, outputs: object, name: str | None, op: int, prescale: float, postscale: float
) -> _core.Operation:
    return _basics.engine().submit(ALLREDUCE, inputs, outputs, name, op, -1, prescale, postscale, True)


def allreduce_async(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[Tensor]:
    """Start `allreduce()`. `synchronize(handle)` returns the result. Do not write to `tensor` before that."""
    require_global(process_set)
    work = contiguous(tensor)
    output = empty_like(work)
    operation = _submit_allreduce(
        for_engine(work), for_engine(output), name, choose_op(op, average), prescale_factor, postscale_factor
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
) -> Tensor:
    """Combine `tensor` over all ranks, element by element; every rank gets the same new tensor.

    Args:
        tensor: the same shape and dtype on every rank.
        average: deprecated, use `op`.
        name: see the module.
        compression: what to send, as Compression.none or Compression.fp16 or a class of your own.
        op: Average (the default), Sum, Min, Max or Product. Integer averages round toward zero.
        prescale_factor: multiplies every input before they are combined.
        postscale_factor: multiplies the result.
        process_set: only the set of all ranks, for now.
    """
    require_global(process_set)
    chosen = choose_op(op, average)
    compressed, context = compression.compress(tensor)
    if needs_gradient((compressed,)):
        reduced = autograd.allreduce(compressed, name, chosen, prescale_factor, postscale_factor)
    else:
        work = contiguous(compressed)
        reduced = empty_like(work)
        _basics.engine().run(
            ALLREDUCE, for_engine(work), for_engine(reduced), name, chosen, -1, prescale_factor, postscale_factor
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
) -> Handle[Tensor]:
    """Start `allreduce_()`. Neither read nor write `tensor` before `synchronize(handle)`, which returns it."""
    require_global(process_set)
    work = contiguous(tensor)
    target = for_engine(work)
    operation = _submit_allreduce(target, target, name, choose_op(op, average), prescale_factor, postscale_factor)
    return Handle(operation, lambda _: bring_back(work, tensor))


def allreduce_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Like `allreduce()`, in place. Returns `tensor`."""
    require_global(process_set)
    work = contiguous(tensor)
    target = for_engine(work)
    chosen = choose_op(op, average)
    _basics.engine().run(ALLREDUCE, target, target, name, chosen, -1, prescale_factor, postscale_factor)
    return bring_back(work, tensor)


def grouped_allreduce_async(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[Tensors]:
    """Start `grouped_allreduce()`. `synchronize(handle)` returns the list of results."""
    require_global(process_set)
    work = [contiguous(tensor) for tensor in tensors]
    outputs = [empty_like(tensor) for tensor in work]
    operation = _submit_allreduce(
        [for_engine(tensor) for tensor in work],
        [for_engine(output) for output in outputs],
        name,
        choose_op(op, average),
        prescale_factor,
        postscale_factor,
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
) -> Tensors:
    """`allreduce()` of several tensors as one operation: all of them or none. They may differ in shape and dtype."""
    require_global(process_set)
    chosen = choose_op(op, average)
    pairs = [compression.compress(tensor) for tensor in tensors]
    compressed = [tensor for tensor, _ in pairs]
    if needs_gradient(compressed):
        reduced = autograd.grouped_allreduce(compressed, name, chosen, prescale_factor, postscale_factor)
    else:
        reduced = grouped_allreduce_async(
            compressed, None, name, chosen, prescale_factor, postscale_factor, process_set
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
) -> Handle[Tensors]:
    """Start `grouped_allreduce_()`. `synchronize(handle)` returns the list of the same tensors."""
    require_global(process_set)
    work = [contiguous(tensor) for tensor in tensors]
    targets = [for_engine(tensor) for tensor in work]
    operation = _submit_allreduce(targets, targets, name, choose_op(op, average), prescale_factor, postscale_factor)
    return Handle(operation, lambda _: [bring_back(*pair) for pair in zip(work, tensors, strict=True)])


def grouped_allreduce_(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensors:
    """`grouped_allreduce()` in place."""
    return grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set).wait()


def allgather_async(
    tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Tensor]:
    """Start `allgather()`. `synchronize(handle)` returns the result."""
    require_global(process_set)
    work = contiguous(tensor)
    operation = _basics.engine().submit(ALLGATHER, for_engine(work), None, name, Sum, -1, 1.0, 1.0, True)
    return Handle(operation, lambda done: like_input(done.outputs()[0], work))


def allgather(tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set) -> Tensor:
    """Join the tensors of all ranks along dimension 0, in rank order; every rank gets the same new tensor.

    Ranks may differ in the size of dimension 0, and in nothing else. Raises InvalidArgumentError for a 0-d tensor.
    """
    if needs_gradient((tensor,)):
        require_global(process_set)
        return autograd.allgather(tensor, name)
    return allgather_async(tensor, name, process_set).wait()


def grouped_allgather_async(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Tensors]:
    """Start `grouped_allgather()`. `synchronize(handle)` returns the list of results."""
    require_global(process_set)
    work = [contiguous(tensor) for tensor in tensors]
    inputs = [for_engine(tensor) for tensor in work]
    operation = _basics.engine().submit(ALLGATHER, inputs, None, name, Sum, -1, 1.0, 1.0, True)
    return Handle(operation, lambda done: [like_input(*pair) for pair in zip(done.outputs(), work, strict=True)])


def grouped_allgather(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensors:
    """`allgather()` of several tensors as one operation: all of them or none."""
    if needs_gradient(tensors):
        require_global(process_set)
        return autograd.grouped_allgather(tensors, name)
    return grouped_allgather_async(tensors, name, process_set).wait()


def broadcast_async(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Tensor]:
    """Start `broadcast()`. `synchronize(handle)` returns the result."""
    require_global(process_set)
    work = contiguous(tensor)
    output = empty_like(work)
    operation = _basics.engine().submit(
        BROADCAST, for_engine(work), for_engine(output), name, Sum, root_rank, 1.0, 1.0, True
    )
    return Handle(operation, lambda _: output)


def broadcast(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """Return the tensor of rank `root_rank`, on every rank. All ranks must give the same shape, dtype and root."""
    if needs_gradient((tensor,)):
        require_global(process_set)
        return autograd.broadcast(tensor, root_rank, name)
    return broadcast_async(tensor, root_rank, name, process_set).wait()


def broadcast_async_(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Tensor]:
    """Start `broadcast_()`. Neither read nor write `tensor` before `synchronize(handle)`, which returns it."""
    require_global(process_set)
    work = contiguous(tensor)
    target = for_engine(work)
    operation = _basics.engine().submit(BROADCAST, target, target, name, Sum, root_rank, 1.0, 1.0, True)
    return Handle(operation, lambda _: bring_back(work, tensor))


def broadcast_(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """`broadcast()` in place. Returns `tensor`."""
    return broadcast_async_(tensor, root_rank, name, process_set).wait()
