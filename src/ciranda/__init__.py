"""Ciranda: distributed data-parallel training. This module works on NumPy arrays; `ciranda.torch` on torch tensors.

    import ciranda as hvd

    hvd.init()
    total = hvd.allreduce(numpy.array([1.0]), op=hvd.Sum)

Every process runs the same script; `ciranda run -np 4 python script.py` starts them.
"""

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
from ciranda._core import __version__
from ciranda._ops import Adasum, Average, Handle, Max, Min, Product, Sum, barrier, poll, synchronize
from ciranda.errors import HorovodInternalError
from ciranda.numpy.functions import allgather_object, broadcast_object
from ciranda.numpy.ops import (
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
)
from ciranda.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set

__all__ = [
    "Adasum",
    "Average",
    "Handle",
    "HorovodInternalError",
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
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "cross_rank",
    "cross_size",
    "errors",
    "global_process_set",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "poll",
    "rank",
    "remove_process_set",
    "shutdown",
    "size",
    "synchronize",
]
