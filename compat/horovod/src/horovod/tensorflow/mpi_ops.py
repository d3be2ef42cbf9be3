"""`horovod.tensorflow.mpi_ops`, served by `ciranda.tensorflow`: who this process is, and the collectives."""

from __future__ import annotations

from typing import Any

import ciranda
from ciranda.tensorflow import (
    Adasum,
    Average,
    Max,
    Min,
    ProcessSet,
    Product,
    Sum,
    add_process_set,
    barrier,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    global_process_set,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
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
from horovod.common.util import get_average_backwards_compatibility_fun, num_rank_is_power_2
from horovod.tensorflow import _defaults
from horovod.tensorflow._defaults import allgather, alltoall, broadcast, broadcast_, grouped_allgather
from horovod.tensorflow.util import _executing_eagerly

handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(ciranda)
check_num_rank_power_of_2 = num_rank_is_power_2


def _allreduce(tensor: Any, name: str | None = None, op: int = Sum, **kwargs: Any) -> Any:
    return _defaults.allreduce(tensor, name=name, op=op, **kwargs)


def _grouped_allreduce(tensors: Any, name: str | None = None, op: int = Sum, **kwargs: Any) -> Any:
    return _defaults.grouped_allreduce(tensors, name=name, op=op, **kwargs)


def _reducescatter(tensor: Any, name: str | None = None, op: int = Sum, **kwargs: Any) -> Any:
    return _defaults.reducescatter(tensor, name=name, op=op, **kwargs)


def _grouped_reducescatter(tensors: Any, name: str | None = None, op: int = Sum, **kwargs: Any) -> Any:
    return _defaults.grouped_reducescatter(tensors, name=name, op=op, **kwargs)
