"""The table of names: which module of `horovod` has which names, and which module of Ciranda they come from.

A module of this package is two lines: it calls `attach`. Names are looked up when they are first used, so that a module
has exactly those that the installed Ciranda has, and `from horovod.torch import *` never fails.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module

import ciranda

#: The newest release of Horovod whose interface this is, and what serves it.
HOROVOD_VERSION = f"0.28.1+ciranda.{ciranda.__version__}"

_STATE = """
    cross_rank cross_size init is_homogeneous is_initialized local_rank local_size rank shutdown size start_timeline
    stop_timeline
"""
_BUILT = """
    ccl_built cuda_built ddl_built gloo_built gloo_enabled mpi_built mpi_enabled mpi_threads_supported nccl_built
    rocm_built
"""
_PROCESS_SETS = "ProcessSet add_process_set global_process_set remove_process_set"
_OPERATIONS = """
    Adasum Average Max Min Product Sum
    barrier join poll synchronize
"""
_AVERAGES = """
    allreduce allreduce_ allreduce_async allreduce_async_
    grouped_allreduce grouped_allreduce_ grouped_allreduce_async grouped_allreduce_async_
    sparse_allreduce_async
"""
_NEEDING_ALL = """
    allgather allgather_async grouped_allgather grouped_allgather_async
    alltoall alltoall_async
    broadcast broadcast_ broadcast_async broadcast_async_
    reducescatter reducescatter_async grouped_reducescatter grouped_reducescatter_async
"""
_OF_MXNET = """
    Adasum Average Max Min Product Sum
    allreduce allreduce_ grouped_allreduce grouped_allreduce_ allgather grouped_allgather
    alltoall broadcast broadcast_ reducescatter grouped_reducescatter
"""
_COMPRESSION = "Compression Compressor FP16Compressor NoneCompressor"
_STATES = """
    ModelStateHandler OptimizerStateHandler SamplerStateHandler StateHandler TorchState get_handler_registry
    set_handler_registry
"""
_FUNCTIONS = "allgather_object broadcast_object broadcast_parameters"

#: Module of this package -> pairs of a module of Ciranda and the names that come from it.
NAMES: dict[str, tuple[tuple[str, str], ...]] = {
    "horovod": (("horovod.runner", "run"),),
    "horovod.torch": (
        ("ciranda.torch", _STATE + _BUILT + _PROCESS_SETS + _OPERATIONS + _FUNCTIONS),
        ("horovod.torch._averages", _AVERAGES),
        ("horovod.torch._sentences", "DistributedOptimizer"),
        ("horovod.torch._needing_all", _NEEDING_ALL),
        ("horovod.torch._functions", "broadcast_optimizer_state"),
        ("ciranda.torch", "Compression SyncBatchNorm HorovodInternalError"),
        ("horovod.common.util", "check_extension"),
    ),
    "horovod.torch.mpi_ops": (
        ("ciranda.torch", _STATE + _BUILT + _PROCESS_SETS + _OPERATIONS),
        ("horovod.torch._averages", _AVERAGES),
        ("horovod.torch._needing_all", _NEEDING_ALL),
    ),
    "horovod.torch.functions": (
        ("ciranda.torch", _FUNCTIONS),
        ("horovod.torch._functions", "broadcast_optimizer_state"),
    ),
    "horovod.torch.optimizer": (("horovod.torch._sentences", "DistributedOptimizer"),),
    "horovod.torch.compression": (("ciranda.torch.compression", _COMPRESSION),),
    "horovod.torch.sync_batch_norm": (("ciranda.torch", "SyncBatchNorm"),),
    "horovod.torch.elastic": (("ciranda.torch.elastic", "ElasticSampler TorchState run"),),
    "horovod.torch.elastic.state": (("ciranda.torch.elastic.state", _STATES),),
    "horovod.torch.elastic.sampler": (("ciranda.torch.elastic.sampler", "ElasticSampler"),),
    "horovod.mxnet": (
        ("ciranda.mxnet", _STATE + _BUILT + _PROCESS_SETS + _OF_MXNET + _FUNCTIONS),
        ("ciranda.mxnet", "Compression HorovodInternalError"),
        ("horovod.mxnet._warning", "DistributedOptimizer DistributedTrainer"),
        ("horovod.common.util", "check_extension"),
    ),
    "horovod.mxnet.mpi_ops": (("ciranda.mxnet", _STATE + _BUILT + _PROCESS_SETS + _OF_MXNET),),
    "horovod.mxnet.functions": (("ciranda.mxnet", "allgather_object broadcast_object"),),
    "horovod.mxnet.compression": (("ciranda.mxnet.compression", _COMPRESSION),),
    "horovod.common.elastic": (("ciranda.elastic", "ObjectState State run_fn"),),
    "horovod.common.process_sets": (("ciranda.process_sets", _PROCESS_SETS + " get_process_set_ids_and_ranks"),),
    "horovod.data": (("ciranda.data", "AsyncDataLoaderMixin BaseDataLoader"),),
    "horovod.data.data_loader_base": (("ciranda.data", "AsyncDataLoaderMixin BaseDataLoader"),),
}


def source_of(module: str, name: str) -> str | None:
    """The module that `name` of `module` comes from; None if the table does not have it."""
    for source, names in NAMES[module]:
        if name in names.split():
            return source
    return None


def public_names(module: str) -> list[str]:
    """The names in the table of `module` that the installed Ciranda has."""
    names = {name: source for source, names in NAMES[module] for name in names.split()}
    return sorted(name for name, source in names.items() if hasattr(import_module(source), name))


def attach(module: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for `module`, which finds its names by the table."""

    def find(name: str) -> object:
        if name == "__all__":
            return public_names(module)
        source = source_of(module, name)
        if source is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        try:
            value: object = getattr(import_module(source), name)
        except AttributeError:
            raise AttributeError(f"{module}.{name} is not available: the installed Ciranda does not have it") from None
        setattr(sys.modules[module], name, value)
        return value

    return find, lambda: sorted({*vars(sys.modules[module]), *public_names(module)})
