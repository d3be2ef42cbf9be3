"""The collectives on NumPy arrays.

In all of them `tensor` is an array (or, for read-only inputs, anything that `numpy.asarray` takes) of any
shape, 0-d and empty included, whose dtype the engine supports: bool, signed and unsigned integers of 8 to 64 bits,
float16, float32, float64, complex64, complex128, and bfloat16 of the package ml_dtypes. Arrays need not be contiguous:
a non-contiguous one is copied, and an in-place result is copied back by `synchronize()`.

`name` identifies the call across ranks: all ranks must use the same one. Without names, all ranks must make the same
calls in the same order.

Every call may raise, besides its own errors: NotInitializedError; InvalidArgumentError for an invalid dtype, operation
or factor; and, from the blocking form or from `synchronize()`, MismatchError if ranks disagree about shape, dtype,
operation, root, factors or kind of collective, RanksLostError if a rank has died, AbortedError if the world was shut
down.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt

from ciranda._collectives import Collectives
from ciranda._collectives.rules import Reduction
from ciranda._ops import ALLREDUCE, Average, Divisor, Handle, choose_op
from ciranda.numpy.arrays import ADAPTER, Array
from ciranda.process_sets import ProcessSet, global_process_set


class _NumpyCollectives(Collectives[npt.ArrayLike, Array, npt.ArrayLike]):
    """The collectives, with the arguments of allreduce and reducescatter in NumPy's order."""

    def allreduce(
        self,
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
        """Combine `tensor` over all ranks, element by element; every rank gets the same new tensor.

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
                weights. Ranks may differ in it, and calls too. Only with op=Average, of floating-point or complex
                types.
            divisor: the divisor of an average while some ranks have joined: "contributors", the number of ranks that
                take part; or "world", that of all ranks of the process set, as if the others contributed zeros.
        """
        if op is None or average is not None:
            op = choose_op(op, average)
        return self._reduced(
            ALLREDUCE, tensor, name, op, prescale_factor, postscale_factor, process_set, weight, divisor
        )

    def grouped_allreduce(
        self,
        tensors: Sequence[npt.ArrayLike],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        weight: float | None = None,
        divisor: Divisor = "contributors",
    ) -> list[Array]:
        """`allreduce()` of several arrays as one operation: all or none. They may differ in shape and dtype."""
        chosen = choose_op(op, average)
        return self._awaited.grouped_allreduce_async(
            tensors, None, name, chosen, prescale_factor, postscale_factor, process_set, weight, divisor
        ).wait()

    def grouped_reducescatter_async(
        self,
        tensors: Sequence[npt.ArrayLike],
        op: int = Average,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        divisor: Divisor = "contributors",
        outputs: Sequence[Array] | None = None,
    ) -> Handle[list[Array]]:
        """Start `grouped_reducescatter()`. `synchronize(handle)` returns the list of results."""
        call = Reduction(op, prescale_factor, postscale_factor, process_set, None, divisor)
        return self._start_reducescatters(tensors, name, call, outputs)

    def grouped_reducescatter(
        self,
        tensors: Sequence[npt.ArrayLike],
        op: int = Average,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        divisor: Divisor = "contributors",
        outputs: Sequence[Array] | None = None,
    ) -> list[Array]:
        """`reducescatter()` of several arrays as one operation: all or none. They may differ in shape and dtype.

        `outputs`, if given, has an array for each, and is returned.
        """
        call = Reduction(op, prescale_factor, postscale_factor, process_set, None, divisor)
        return self._awaited._start_reducescatters(tensors, name, call, outputs).wait()

    def reducescatter_async(
        self,
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
        call = Reduction(op, prescale_factor, postscale_factor, process_set, None, divisor)
        outputs = None if output is None else [output]
        return self._start_reducescatters([tensor], name, call, outputs).then(lambda results: results[0])

    def reducescatter(
        self,
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

        The rows (along dimension 0) are distributed in rank order: the same number to each rank, and one more to each
        of the first `rows mod size()`. They are bit for bit the rows of an `allreduce()`.

        Args:
            tensor: the same shape and dtype on every rank, with at least one dimension.
            op: Average (the default), or any other that `allreduce()` takes.
            name: see the module.
            process_set: the ranks that take part; all, if not given.
            prescale_factor: multiplies every input before they are combined.
            postscale_factor: multiplies the result.
            divisor: of an average, as for `allreduce()`.
            output: an array of the shape and dtype of the result; the result is written to it, and it is returned. By
                default a new one. It must not overlap `tensor`. Some ranks may give one and others not.

        Raises:
            InvalidArgumentError: `output` has another shape or dtype, is read-only, or overlaps `tensor`.
        """
        return self._reducescatter(tensor, name, op, process_set, prescale_factor, postscale_factor, divisor, output)


collectives = _NumpyCollectives(ADAPTER)
allreduce = collectives.allreduce
allreduce_ = collectives.allreduce_
allreduce_async = collectives.allreduce_async
allreduce_async_ = collectives.allreduce_async_
grouped_allreduce = collectives.grouped_allreduce
grouped_allreduce_ = collectives.grouped_allreduce_
grouped_allreduce_async = collectives.grouped_allreduce_async
grouped_allreduce_async_ = collectives.grouped_allreduce_async_
allgather = collectives.allgather
allgather_async = collectives.allgather_async
grouped_allgather = collectives.grouped_allgather
grouped_allgather_async = collectives.grouped_allgather_async
broadcast = collectives.broadcast
broadcast_ = collectives.broadcast_
broadcast_async = collectives.broadcast_async
broadcast_async_ = collectives.broadcast_async_
grouped_broadcast = collectives.grouped_broadcast
grouped_broadcast_ = collectives.grouped_broadcast_
grouped_broadcast_async = collectives.grouped_broadcast_async
grouped_broadcast_async_ = collectives.grouped_broadcast_async_
reducescatter = collectives.reducescatter
reducescatter_async = collectives.reducescatter_async
grouped_reducescatter = collectives.grouped_reducescatter
grouped_reducescatter_async = collectives.grouped_reducescatter_async
alltoall = collectives.alltoall
alltoall_ = collectives.alltoall_
alltoall_async = collectives.alltoall_async
alltoall_async_ = collectives.alltoall_async_
grouped_alltoall = collectives.grouped_alltoall
grouped_alltoall_ = collectives.grouped_alltoall_
grouped_alltoall_async = collectives.grouped_alltoall_async
grouped_alltoall_async_ = collectives.grouped_alltoall_async_
reduce = collectives.reduce
reduce_ = collectives.reduce_
reduce_async = collectives.reduce_async
reduce_async_ = collectives.reduce_async_
grouped_reduce = collectives.grouped_reduce
grouped_reduce_ = collectives.grouped_reduce_
grouped_reduce_async = collectives.grouped_reduce_async
grouped_reduce_async_ = collectives.grouped_reduce_async_
gather = collectives.gather
gather_async = collectives.gather_async
grouped_gather = collectives.grouped_gather
grouped_gather_async = collectives.grouped_gather_async
scatter = collectives.scatter
scatter_async = collectives.scatter_async
grouped_scatter = collectives.grouped_scatter
grouped_scatter_async = collectives.grouped_scatter_async
scan = collectives.scan
scan_async = collectives.scan_async
grouped_scan = collectives.grouped_scan
grouped_scan_async = collectives.grouped_scan_async
send = collectives.send
send_async = collectives.send_async
grouped_send = collectives.grouped_send
grouped_send_async = collectives.grouped_send_async
recv = collectives.recv
recv_async = collectives.recv_async
grouped_recv = collectives.grouped_recv
grouped_recv_async = collectives.grouped_recv_async
