"""Ciranda for JAX: collectives inside and outside `jit`, and a distributed optimizer for optax.

import ciranda.jax as hvd

hvd.init()
optimizer = hvd.distributed(optax.adam(1e-3))
params = hvd.broadcast_parameters(params)

@jax.jit
def step(params, state, batch):
    loss, gradients = jax.value_and_grad(loss_of)(params, batch)
    updates, state = optimizer.update(gradients, state, params)
    return optax.apply_updates(params, updates), state, hvd.allreduce(loss)
"""

# ruff: noqa: E402 (require() reports a missing JAX before the imports)

from ciranda._frameworks import require

require("jax", __name__)

from ciranda.jax import _versions

_versions.check()

from ciranda import errors
from ciranda._basics import (
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from ciranda._builds import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
)
from ciranda._core import __version__
from ciranda._ops import (
    Adasum,
    Average,
    BitwiseAnd,
    BitwiseOr,
    BitwiseXor,
    Handle,
    LogicalAnd,
    LogicalOr,
    LogicalXor,
    Max,
    Min,
    Product,
    Sum,
    barrier_async,
    poll,
    synchronize,
)
from ciranda._timeline import start_timeline, stop_timeline
from ciranda.errors import HorovodInternalError
from ciranda.jax import elastic
from ciranda.jax.compression import Compression, Compressor
from ciranda.jax.functions import (
    allgather_object,
    broadcast_object,
    broadcast_parameters,
    check_consistency,
    ciranda_errors,
    join,
    join_async,
)
from ciranda.jax.ops import (
    allgather,
    allgather_async,
    allreduce,
    allreduce_async,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_async,
    gather,
    gather_async,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_async,
    grouped_alltoall,
    grouped_alltoall_async,
    grouped_broadcast,
    grouped_broadcast_async,
    grouped_gather,
    grouped_gather_async,
    grouped_reduce,
    grouped_reduce_async,
    grouped_reducescatter,
    grouped_reducescatter_async,
    grouped_scan,
    grouped_scan_async,
    grouped_scatter,
    grouped_scatter_async,
    reduce,
    reduce_async,
    reducescatter,
    reducescatter_async,
    scan,
    scan_async,
    scatter,
    scatter_async,
)
from ciranda.jax.optimizer import distributed
from ciranda.process_sets import (
    ProcessSet,
    add_process_set,
    get_process_set_ids_and_ranks,
    global_process_set,
    remove_process_set,
)

__all__ = [
    "Adasum",
    "Average",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "Compression",
    "Compressor",
    "Handle",
    "HorovodInternalError",
    "LogicalAnd",
    "LogicalOr",
    "LogicalXor",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "__version__",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_async",
    "alltoall",
    "alltoall_async",
    "barrier",
    "barrier_async",
    "broadcast",
    "broadcast_async",
    "broadcast_object",
    "broadcast_parameters",
    "ccl_built",
    "check_consistency",
    "ciranda_errors",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "distributed",
    "elastic",
    "errors",
    "gather",
    "gather_async",
    "get_process_set_ids_and_ranks",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_async",
    "grouped_alltoall",
    "grouped_alltoall_async",
    "grouped_broadcast",
    "grouped_broadcast_async",
    "grouped_gather",
    "grouped_gather_async",
    "grouped_reduce",
    "grouped_reduce_async",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "grouped_scan",
    "grouped_scan_async",
    "grouped_scatter",
    "grouped_scatter_async",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "join_async",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "rank",
    "reduce",
    "reduce_async",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "rocm_built",
    "scan",
    "scan_async",
    "scatter",
    "scatter_async",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]
