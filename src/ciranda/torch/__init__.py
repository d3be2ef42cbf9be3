"""Ciranda for torch, with the names and signatures of `horovod.torch`.

For example:

    import ciranda.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
"""

# ruff: noqa: E402 (a missing torch is reported before it is imported)

from typing import TYPE_CHECKING

from ciranda._frameworks import require

require("torch", __name__)

from ciranda._frameworks import common as _common
from ciranda._frameworks import with_handles as _with_handles
from ciranda._frameworks.common import *
from ciranda._frameworks.with_handles import *
from ciranda._ops import barrier as barrier
from ciranda._ops import barrier_async as barrier_async
from ciranda._ops import join as join
from ciranda._ops import join_async as join_async
from ciranda.torch import elastic as elastic
from ciranda.torch import functions, graphs, ops
from ciranda.torch.adasum import AdasumOptimizer
from ciranda.torch.compression import Compression as Compression
from ciranda.torch.compression import Compressor as Compressor
from ciranda.torch.functions import *
from ciranda.torch.gradient_optimizer import GradientOptimizer
from ciranda.torch.gradients import GradientGroup
from ciranda.torch.local_sgd import LocalOptimizer
from ciranda.torch.local_sgd import LocalSGD as LocalSGD
from ciranda.torch.ops import *
from ciranda.torch.optimizer import DistributedOptimizer as DistributedOptimizer
from ciranda.torch.overlapping_optimizer import OverlappingOptimizer
from ciranda.torch.sparse import sparse_allreduce_async as sparse_allreduce_async
from ciranda.torch.sync_batch_norm import SyncBatchNorm as SyncBatchNorm
from ciranda.torch.uncompiled import leave_uncompiled

graphs.watch()

if not TYPE_CHECKING:  # type checkers take them from the imports
    __all__ = [
        *_common.__all__,
        *_with_handles.__all__,
        *functions.__all__,
        *ops.__all__,
        "Compression",
        "Compressor",
        "DistributedOptimizer",
        "LocalSGD",
        "SyncBatchNorm",
        "barrier",
        "barrier_async",
        "elastic",
        "join",
        "join_async",
        "sparse_allreduce_async",
    ]
    leave_uncompiled(globals()[name] for name in __all__)

leave_uncompiled(
    method
    for kind in (GradientGroup, GradientOptimizer, OverlappingOptimizer, AdasumOptimizer, LocalOptimizer)
    for method in vars(kind).values()
)
