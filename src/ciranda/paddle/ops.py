"""The collectives on tensors of dygraph. Names, arguments and defaults are Horovod's.

Tensors are in CPU memory and have any shape. `name` identifies the call across ranks: all ranks must use the same one.
Without names, all ranks must make the same calls in the same order. The blocking forms that return a new tensor are
differentiable: see `ciranda._collectives.rules`. In programs, use the operators (`ciranda.paddle.operators`).
"""

from __future__ import annotations

from ciranda._collectives import CompressedCollectives
from ciranda.paddle.tensors import ADAPTER

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
send = collectives.send
send_async = collectives.send_async
grouped_send = collectives.grouped_send
grouped_send_async = collectives.grouped_send_async
recv = collectives.recv
recv_async = collectives.recv_async
grouped_recv = collectives.grouped_recv
grouped_recv_async = collectives.grouped_recv_async
