"""Ciranda for Apache MXNet: collectives in MXNet's engine, a Trainer for Gluon, an Optimizer for the Module API.

import ciranda.mxnet as hvd

hvd.init()
net.initialize()
hvd.broadcast_parameters(net.collect_params())
trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
"""

# ruff: noqa: E402 (require() reports a missing MXNet before the imports)

from ciranda._frameworks import require

require("mxnet", __name__)

from ciranda.mxnet import _versions

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
from ciranda._frameworks.objects import allgather_object, broadcast_object
from ciranda._ops import Adasum, Average, Max, Min, Product, Sum, barrier
from ciranda._timeline import start_timeline, stop_timeline
from ciranda.errors import HorovodInternalError
from ciranda.mxnet import elastic
from ciranda.mxnet.compression import Compression, Compressor
from ciranda.mxnet.failures import as_ciranda_error, last_error
from ciranda.mxnet.ops import (
    allgather,
    allreduce,
    allreduce_,
    alltoall,
    broadcast,
    broadcast_,
    grouped_allgather,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_reducescatter,
    join,
    reducescatter,
    shutdown,
)
from ciranda.mxnet.optimizer import DistributedOptimizer
from ciranda.mxnet.parameters import broadcast_parameters
from ciranda.mxnet.trainer import DistributedTrainer
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
    "Compression",
    "Compressor",
    "DistributedOptimizer",
    "DistributedTrainer",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "__version__",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "alltoall",
    "as_ciranda_error",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_object",
    "broadcast_parameters",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "errors",
    "get_process_set_ids_and_ranks",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_reducescatter",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "last_error",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
