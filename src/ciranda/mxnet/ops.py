"""The collectives on MXNet's arrays, with the arguments of `horovod.mxnet`.

A tensor is a dense `mx.nd.NDArray` or `mx.np.ndarray` in the memory of the CPU, of any dtype of MXNet's: bool, uint8,
int8, int32, int64, float16, bfloat16, float32, float64; results are of the same kind. allreduce, broadcast and
reducescatter are operations of MXNet's engine, as those of `mx.nd` are: they return at once, wait for operations that
write their arrays, and operations that read the results wait for them. A failure is raised where MXNet raises: at the
next `asnumpy()`, `wait_to_read()` or `mx.nd.waitall()`, as an exception that is both an MXNetError and one of
`ciranda.errors`. allgather and alltoall return when they are done, as the shape of their results is not known before.

`name` identifies the call across ranks: all ranks must use the same one; calls without names must be made in the same
order on all ranks. A name may be used again when its result has been waited for, or at once on an array that the
previous call writes. Of the calls that are ready on all ranks, those of a higher `priority` are executed first.

All have gradients, those of `ciranda.torch`, except the forms in place.

Every call may raise: InvalidArgumentError, at once, for an invalid call (NotInitializedError without `init()`);
MismatchError if ranks disagree about shape, dtype, operation, root, factors or kind of collective; RanksLostError if a
rank has died; TimeoutError if one did not call in time; AbortedError if the world was shut down; InternalError if the
system refuses a request. All but the first are HorovodInternalErrors.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import mxnet as mx
from mxnet.ndarray import NDArray

from ciranda import _basics, _init, _ops
from ciranda._ops import Average, Divisor
from ciranda.mxnet import _calls, _gradients, arrays
from ciranda.mxnet._plugin import pushed_names
from ciranda.mxnet.arrays import Splits
from ciranda.mxnet.failures import raises_mxnet_errors
from ciranda.process_sets import ProcessSet, global_process_set

__all__ = [
    "allgather",
    "allreduce",
    "allreduce_",
    "alltoall",
    "broadcast",
    "broadcast_",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_reducescatter",
    "join",
    "reducescatter",
    "shutdown",
]

#: The longest wait for calls before this process leaves the world.
_FINISHING_SECONDS = 2.0


@raises_mxnet_errors
def allreduce(
    tensor: NDArray,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
    divisor: Divisor = "contributors",
) -> NDArray:
    """Combine `tensor` over all ranks, element by element; every rank gets the same new array.

    Args:
        tensor: the same shape and dtype on every rank.
        average: deprecated, use `op`.
        name: see the module.
        priority: see the module.
        prescale_factor: multiplies every input before they are combined.
        postscale_factor: multiplies the result.
        process_set: the ranks that take part; all, if not given.
        op: Average (the default), Sum, Min, Max, Product or Adasum. Integer averages round toward zero.
        divisor: the divisor of an average while some ranks have joined: "contributors", the number of ranks that take
            part; or "world", that of all ranks of the process set.
    """
    return grouped_allreduce(
        [tensor], average, name, priority, prescale_factor, postscale_factor, process_set, op, divisor
    )[0]


@raises_mxnet_errors
def allreduce_(
    tensor: NDArray,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
    divisor: Divisor = "contributors",
) -> NDArray:
    """Like `allreduce()`, in place. Returns `tensor`. It has no gradient."""
    grouped_allreduce_([tensor], average, name, priority, prescale_factor, postscale_factor, process_set, op, divisor)
    return tensor


@raises_mxnet_errors
def grouped_allreduce(
    tensors: Sequence[NDArray],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
    divisor: Divisor = "contributors",
) -> list[NDArray]:
    """`allreduce()` of several arrays as one operation: all or none. They may differ in shape and dtype."""
    given = arrays.checked(tensors)
    its_name = _calls.named(name, "allreduce", process_set)
    factors = (prescale_factor, postscale_factor)
    call = _calls.reduction(its_name, process_set, priority, op, average, factors, divisor)
    return _gradients.allreduce(given, call)


@raises_mxnet_errors
def grouped_allreduce_(
    tensors: Sequence[NDArray],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
    divisor: Divisor = "contributors",
) -> list[NDArray]:
    """`grouped_allreduce()` in place. Returns the arrays."""
    given = arrays.checked(tensors)
    its_name = _calls.named(name, "allreduce", process_set)
    factors = (prescale_factor, postscale_factor)
    _calls.allreduce_(given, _calls.reduction(its_name, process_set, priority, op, average, factors, divisor))
    return given


@raises_mxnet_errors
def broadcast(
    tensor: NDArray,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> NDArray:
    """Return the array of rank `root_rank`, on every rank. All ranks must give the same shape, dtype and root."""
    (given,) = arrays.checked([tensor])
    return _gradients.broadcast(given, _broadcast(name, root_rank, priority, process_set))


@raises_mxnet_errors
def broadcast_(
    tensor: NDArray,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> NDArray:
    """`broadcast()` in place. Returns `tensor`. It has no gradient."""
    _calls.broadcast_(arrays.checked([tensor]), _broadcast(name, root_rank, priority, process_set))
    return tensor


def _broadcast(name: str | None, root_rank: int, priority: int, process_set: ProcessSet) -> _calls.Call:
    _basics.require_rank(root_rank)
    its_name = _calls.named(name, "broadcast", process_set)
    return _calls.Call(its_name, process_set, priority, root=root_rank)


@raises_mxnet_errors
def reducescatter(
    tensor: NDArray,
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
) -> NDArray:
    """Combine `tensor` over all ranks, element by element, and return this rank's share of the rows.

    The rows (along dimension 0) are distributed in rank order: the same number to each rank, and one more to each of
    the first `rows mod size()`. The arguments are those of `allreduce()`.
    """
    return grouped_reducescatter([tensor], op, name, priority, process_set, prescale_factor, postscale_factor, divisor)[
        0
    ]


@raises_mxnet_errors
def grouped_reducescatter(
    tensors: Sequence[NDArray],
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
) -> list[NDArray]:
    """`reducescatter()` of several arrays as one operation: all or none. They may differ in shape and dtype."""
    given = arrays.checked(tensors)
    its_name = _calls.named(name, "reducescatter", process_set)
    factors = (prescale_factor, postscale_factor)
    call = _calls.reduction(its_name, process_set, priority, op, None, factors, divisor)
    return _gradients.reducescatter(given, call)


@raises_mxnet_errors
def allgather(
    tensor: NDArray, name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> NDArray:
    """Join the arrays of all ranks along dimension 0, in rank order; every rank gets the same new array.

    Ranks may differ in the size of dimension 0 only. Returns when it is done.
    """
    return grouped_allgather([tensor], name, priority, process_set)[0]


@raises_mxnet_errors
def grouped_allgather(
    tensors: Sequence[NDArray], name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> list[NDArray]:
    """`allgather()` of several arrays as one operation: all or none."""
    given = arrays.checked(tensors)
    its_name = _calls.named(name, "allgather", process_set)
    return _gradients.allgather(given, _calls.Call(its_name, process_set, priority))


@raises_mxnet_errors
def alltoall(
    tensor: NDArray,
    splits: Splits | None = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> NDArray | tuple[NDArray, NDArray]:
    """Send different rows of `tensor` (dimension 0) to each rank; return the received rows, in rank order.

    Args:
        tensor: at least one dimension. Ranks may differ in the size of dimension 0 only.
        splits: the number of rows for each rank of the set: whole numbers, as an array or a list, whose sum is the
            first dimension. They may differ between ranks and with every call. None: the same number for each, which
            must divide the first dimension.
        name: see the module.
        priority: see the module.
        process_set: the ranks that take part; all, if not given.

    Returns:
        The received array; if `splits` is given, a pair of it and the number of rows received from each rank, an array
        of int32.
    """
    (given,) = arrays.checked([tensor])
    its_name = _calls.named(name, "alltoall", process_set)
    output, counts = _gradients.alltoall(given, splits, _calls.Call(its_name, process_set, priority))
    return output if splits is None else (output, _counts(counts, given))


def _counts(counts: Sequence[int], like: NDArray) -> Any:
    module = mx.np if isinstance(like, mx.np.ndarray) else mx.nd
    with mx.autograd.pause():
        return module.array(counts, dtype="int32", ctx=like.ctx)


@raises_mxnet_errors
def join(device: int = -1, process_set: ProcessSet = global_process_set) -> int:
    """Declare that this rank has no more work, and wait until all ranks have joined; as `ciranda.join()`.

    First waits for all pending MXNet operations, on every process set: their collectives are this rank's work as well,
    also if they still wait for other operations. Raises the error of a failed one.

    Args:
        device: ignored; accepted for scripts written for Horovod.
        process_set: the set whose collectives this rank leaves out.

    Returns:
        The rank that was the last to join, counted in the whole world.
    """
    mx.nd.waitall()
    return _ops.join(device, process_set)


def finish_pushed() -> None:
    """Wait until the calls in MXNet's queues and the pending ones have ended, for two seconds at most."""
    deadline = time.monotonic() + _FINISHING_SECONDS
    while _basics.is_initialized() and pushed_names() and time.monotonic() < deadline:
        time.sleep(0.0005)


# Where a program ends without shutdown(), MXNet would raise the errors of calls that this process has left.
_init.ending.finish_first(finish_pushed)


def shutdown() -> None:
    """Leave the world, as `ciranda.shutdown()`, after the calls in MXNet's queues and the pending ones have ended.

    Many calls in MXNet are never waited for, as those of the last step of a training. Calls that have not ended after
    two seconds, because other ranks never make them, fail with AbortedError.
    """
    finish_pushed()
    _init.shutdown()
