"""Ciranda for Apache MXNet: collectives in MXNet's engine, a Trainer for Gluon, an Optimizer for the Module API.

For example:

    import ciranda.mxnet as hvd

    hvd.init()
    net.initialize()
    hvd.broadcast_parameters(net.collect_params())
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
"""

# ruff: noqa: E402 (require() reports a missing MXNet before the imports)

from typing import TYPE_CHECKING

from ciranda._frameworks import require

require("mxnet", __name__)

from ciranda.mxnet import _versions

_versions.check()

from ciranda._frameworks import common as _common
from ciranda._frameworks.common import *
from ciranda._frameworks.objects import allgather_object as allgather_object
from ciranda._frameworks.objects import broadcast_object as broadcast_object
from ciranda._ops import barrier as barrier
from ciranda.mxnet import elastic as elastic
from ciranda.mxnet import ops
from ciranda.mxnet.compression import Compression as Compression
from ciranda.mxnet.compression import Compressor as Compressor
from ciranda.mxnet.failures import as_ciranda_error as as_ciranda_error
from ciranda.mxnet.failures import last_error as last_error
from ciranda.mxnet.ops import *
from ciranda.mxnet.optimizer import DistributedOptimizer as DistributedOptimizer
from ciranda.mxnet.parameters import broadcast_parameters as broadcast_parameters
from ciranda.mxnet.trainer import DistributedTrainer as DistributedTrainer
from ciranda.process_sets import get_process_set_ids_and_ranks as get_process_set_ids_and_ranks

if not TYPE_CHECKING:  # type checkers take them from the imports
    __all__ = [
        *{*_common.__all__, *ops.__all__},  # both have shutdown
        "Compression",
        "Compressor",
        "DistributedOptimizer",
        "DistributedTrainer",
        "allgather_object",
        "as_ciranda_error",
        "barrier",
        "broadcast_object",
        "broadcast_parameters",
        "elastic",
        "get_process_set_ids_and_ranks",
        "last_error",
    ]
