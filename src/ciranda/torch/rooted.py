"""The collectives on torch tensors that give a result to one rank, or take it from one: reduce, gather, scatter.

What `ciranda.torch.ops` says of tensors, names and errors holds here too. Names, arguments and defaults are those of
`ciranda` for NumPy arrays; Horovod has none of these.

The blocking forms that return a new tensor are differentiable; the gradient is that of the sum of all ranks' losses. A
result that only the root gets is None elsewhere; but where autograd records, it is a tensor without elements, which
stands for this rank's part of the backward pass: every rank must make it, for example by `result.sum().backward()`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ciranda import _basics, _core
from ciranda._ops import (
    GATHER,
    REDUCE,
    SCATTER,
    Average,
    Divisor,
    Handle,
    lists_of_splits,
    submit_move,
    submit_reduction,
)
from ciranda.process_sets import ProcessSet, global_process_set
from ciranda.torch import rooted_autograd
from ciranda.torch.rows import Splits, splits_list
from ciranda.torch.tensors import (
    all_contiguous,
    all_for_engine,
    bring_all_back,
    empty_like,
    like_inputs,
    needs_gradient,
)

Tensor = torch.Tensor
Tensors = list[torch.Tensor]


# --- reduce


def grouped_reduce_async(
    tensors: Sequence[Tensor],
    root_rank: int,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
) -> Handle[Tensors | None]:
    """Start `grouped_reduce()`. `synchronize(handle)` returns the list of results on the root, None elsewhere."""
    work = all_contiguous(tensors)
    results = [empty_like(tensor) for tensor in work] if _basics.rank() == root_rank else None
    operation = submit_reduction(
        REDUCE,
        all_for_engine(work),
        None if results is None else all_for_engine(results),
        name,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        divisor,
        root=root_rank,
    )
    return Handle(operation, lambda _: results)


def grouped_reduce(
    tensors: Sequence[Tensor],
    root_rank: int,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
) -> Tensors | None:
    """`reduce()` of several tensors as one operation: all of them or none. They may differ in shape and dtype."""
    call = (root_rank, op, name, process_set, prescale_factor, postscale_factor, divisor)
    if needs_gradient(tensors):
        return rooted_autograd.grouped_reduce(tensors, *call)
    return grouped_reduce_async(tensors, *call).wait()


def reduce_async(
    tensor: Tensor,
    root_rank: int,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
) -> Handle[Tensor | None]:
    """Start `reduce()`. `synchronize(handle)` returns the result. Do not write to `tensor` before that."""
    group = grouped_reduce_async([tensor], root_rank, op, name, process_set, prescale_factor, postscale_factor, divisor)
    return group.then(lambda results: None if results is None else results[0])


def reduce(
    tensor: Tensor,
    root_rank: int,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
) -> Tensor | None:
    """Combine `tensor` over all ranks for one of them: what `allreduce()` gives on rank `root_rank`, None elsewhere.

    Args:
        tensor: the same shape and dtype on every rank.
        root_rank: the rank that gets the result; the same on every rank.
        op: Average (the default), or any other that `allreduce()` takes. Average and Sum have a gradient: the root's,
            scaled as the tensor was.
        name: see `ciranda.torch.ops`.
        process_set: the ranks that take part; all, if not given.
        prescale_factor: multiplies every input before they are combined.
        postscale_factor: multiplies the result.
        divisor: of an average, as for `allreduce()`.
    """
    results = grouped_reduce([tensor], root_rank, op, name, process_set, prescale_factor, postscale_factor, divisor)
    return None if results is None else results[0]


def grouped_reduce_async_(
    tensors: Sequence[Tensor],
    root_rank: int,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
) -> Handle[Tensors]:
    """Start `grouped_reduce_()`. `synchronize(handle)` returns the list of the same tensors."""
    work = all_contiguous(tensors)
    targets = all_for_engine(work)
    is_root = _basics.rank() == root_rank
    operation = submit_reduction(
        REDUCE,
        targets,
        targets if is_root else None,
        name,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        divisor,
        root=root_rank,
    )

    def finish(_operation: _core.Operation) -> Tensors:
        return bring_all_back(work, tensors) if is_root else list(tensors)

    return Handle(operation, finish)


def grouped_reduce_(
    tensors: Sequence[Tensor],
    root_rank: int,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
) -> Tensors:
    """`grouped_reduce()` in place: the root's tensors get the results. Returns the list of the same tensors."""
    return grouped_reduce_async_(
        tensors, root_rank, op, name, process_set, prescale_factor, postscale_factor, divisor
    ).wait()


def reduce_async_(
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
    group = grouped_reduce_async_(
        [tensor], root_rank, op, name, process_set, prescale_factor, postscale_factor, divisor
    )
    return group.then(lambda results: results[0])


def reduce_(
    tensor: Tensor,
    root_rank: int,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
) -> Tensor:
    """`reduce()` in place: the root's `tensor` gets the result, the others' stay as they are. Returns `tensor`."""
    return reduce_async_(tensor, root_rank, op, name, process_set, prescale_factor, postscale_factor, divisor).wait()


# --- gather


def grouped_gather_async(
    tensors: Sequence[Tensor],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[Tensors | None]:
    """Start `grouped_gather()`. `synchronize(handle)` returns the list of results on the root, None elsewhere."""
    work = all_contiguous(tensors)
    operation = submit_move(GATHER, all_for_engine(work), None, name, process_set, root_rank)
    is_root = _basics.rank() == root_rank
    return Handle(operation, lambda done: like_inputs(done.outputs(), work) if is_root else None)


def grouped_gather(
    tensors: Sequence[Tensor],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensors | None:
    """`gather()` of several tensors as one operation: all of them or none."""
    if needs_gradient(tensors):
        return rooted_autograd.grouped_gather(tensors, root_rank, name, process_set)
    return grouped_gather_async(tensors, root_rank, name, process_set).wait()


def gather_async(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[Tensor | None]:
    """Start `gather()`. `synchronize(handle)` returns the result. Do not write to `tensor` before that."""
    group = grouped_gather_async([tensor], root_rank, name, process_set)
    return group.then(lambda results: None if results is None else results[0])


def gather(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor | None:
    """Join the tensors of all ranks along dimension 0 for one of them: what `allgather()` gives there, None elsewhere.

    Ranks may differ in the size of dimension 0, and in nothing else. The gradient of every row goes back to the rank
    that it came from. Raises InvalidArgumentError for a 0-d tensor.
    """
    results = grouped_gather([tensor], root_rank, name, process_set)
    return None if results is None else results[0]


# --- scatter


def grouped_scatter_async(
    tensors: Sequence[Tensor],
    root_rank: int,
    splits: Sequence[Splits | None] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[Tensors]:
    """Start `grouped_scatter()`. `synchronize(handle)` returns the list of results."""
    work = all_contiguous(tensors)
    numbers = lists_of_splits(len(work), splits, splits_list) if _basics.rank() == root_rank else None
    operation = submit_move(SCATTER, all_for_engine(work), None, name, process_set, root_rank, numbers)
    return Handle(operation, lambda done: like_inputs(done.outputs(), work))


def grouped_scatter(
    tensors: Sequence[Tensor],
    root_rank: int,
    splits: Sequence[Splits | None] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensors:
    """`scatter()` of several tensors as one operation: all of them or none. `splits` has an entry for each."""
    if needs_gradient(tensors):
        return rooted_autograd.grouped_scatter(tensors, root_rank, splits, name, process_set)
    return grouped_scatter_async(tensors, root_rank, splits, name, process_set).wait()


def scatter_async(
    tensor: Tensor,
    root_rank: int,
    splits: Splits | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[Tensor]:
    """Start `scatter()`. `synchronize(handle)` returns the result. Do not write to `tensor` before that."""
    group = grouped_scatter_async([tensor], root_rank, [splits], name, process_set)
    return group.then(lambda results: results[0])


def scatter(
    tensor: Tensor,
    root_rank: int,
    splits: Splits | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Share out the rows of rank `root_rank`'s tensor (along dimension 0), in rank order; return this rank's.

    Args:
        tensor: on the root, the rows. Elsewhere a tensor of the same dtype and the same dimensions but the first, of
            which nothing else is looked at: `torch.empty(0, 3)` receives rows of three float32. For a gradient, which
            is each rank's of its rows put together on the root, the tensors of all ranks must require one.
        root_rank: the rank that has the rows; the same on every rank.
        splits: on the root, how many rows go to each rank of the set: whole numbers, as a tensor or a list, that add up
            to the first dimension. Not looked at elsewhere. None: the same number to each, and one more to each of the
            first `rows mod size()`.
        name: see `ciranda.torch.ops`.
        process_set: the ranks that take part; all, if not given.
    """
    return grouped_scatter([tensor], root_rank, [splits], name, process_set)[0]
