"""`horovod.tensorflow`, served by `ciranda.tensorflow`."""

from __future__ import annotations

import ciranda.tensorflow  # says what is missing, where TensorFlow is
from ciranda.tensorflow import (
    BroadcastGlobalVariablesHook,
    Compression,
    HorovodInternalError,
    SyncBatchNormalization,
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
    is_initialized,
)
from horovod.common.util import check_extension, gpu_available, split_list
from horovod.tensorflow import compression, elastic, functions, gradient_aggregation, mpi_ops, sync_batch_norm, util
from horovod.tensorflow._defaults import (
    DistributedGradientTape,
    DistributedOptimizer,
    PartialDistributedGradientTape,
    allreduce,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.mpi_ops import (
    Adasum,
    Average,
    Max,
    Min,
    ProcessSet,
    Product,
    Sum,
    add_process_set,
    allgather,
    alltoall,
    barrier,
    broadcast,
    broadcast_,
    ccl_built,
    check_num_rank_power_of_2,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    global_process_set,
    gloo_built,
    gloo_enabled,
    grouped_allgather,
    handle_average_backwards_compatibility,
    init,
    is_homogeneous,
    join,
    local_rank,
    local_rank_op,
    local_size,
    local_size_op,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    process_set_included_op,
    rank,
    rank_op,
    remove_process_set,
    rocm_built,
    shutdown,
    size,
    size_op,
    start_timeline,
    stop_timeline,
)
from horovod.tensorflow.util import _cache, _executing_eagerly, _make_subgraph, refs_to_vars, vars_to_refs
