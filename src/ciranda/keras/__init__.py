"""Ciranda for Keras 3 on TensorFlow, JAX and torch, and for Keras 2.15, with the names of `horovod.keras`.

import ciranda.keras as hvd

hvd.init()
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss)
batches = hvd.GlobalBatches(x, y, batch_size=64, shuffle=True)
model.fit(batches, shuffle=False, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
"""

# ruff: noqa: E402 (a missing Keras is reported before it is imported)

from ciranda._frameworks import require

require("keras", __name__)

from ciranda.keras import _versions

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
from ciranda._frameworks.objects import allgather_object, broadcast_object
from ciranda._ops import Adasum, Average, Max, Min, Product, Sum, barrier, join
from ciranda._timeline import start_timeline, stop_timeline
from ciranda.errors import HorovodInternalError
from ciranda.keras import callbacks, elastic
from ciranda.keras.compression import Compression, Compressor
from ciranda.keras.data import GlobalBatches
from ciranda.keras.functions import (
    allgather,
    allreduce,
    broadcast,
    broadcast_global_variables,
    broadcast_variables,
    load_model,
    reducescatter,
)
from ciranda.keras.wrapping import DistributedOptimizer, PartialDistributedOptimizer
from ciranda.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "Compressor",
    "DistributedOptimizer",
    "GlobalBatches",
    "HorovodInternalError",
    "Max",
    "Min",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Product",
    "Sum",
    "__version__",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "errors",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "load_model",
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
