"""The collectives on torch tensors. Names, arguments and defaults are those of `horovod.torch`, where that has them.

Tensors are in CPU memory, have any shape (0-d and empty included) and a dtype that the engine supports: bool, the
integers of 8 to 64 bits, float16, bfloat16, float32, float64, complex64, complex128. Tensors need not be contiguous; a
non-contiguous one is copied, and an in-place result is copied back by `synchronize()`.

`name` identifies the call across ranks: all ranks must use the same one. Without names, all ranks must make the same
calls in the same order.

The blocking forms that return a new tensor (except `recv`) are differentiable: see `ciranda._collectives.rules`. The
asynchronous and in-place forms are not. A result that only the root gets is None elsewhere. While autograd records, it
is a tensor without elements instead, from which this rank starts its part of the backward pass: every rank must run it,
for example by `result.sum().backward()`.

Every call may raise, besides its own errors: NotInitializedError; InvalidArgumentError for an invalid dtype, operation
or factor; and, from the blocking form or from `synchronize()`, MismatchError if ranks disagree about shape, dtype,
operation, root, factors or kind of collective, RanksLostError if a rank has died, AbortedError if the world was shut
down.
"""

from __future__ import annotations

from ciranda._collectives import CompressedCollectives
from ciranda.torch.tensors import ADAPTER

collectives = CompressedCollectives(ADAPTER)
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
