"""Ciranda for Keras 3 on TensorFlow, JAX and torch, and for Keras 2.15, with the names of `horovod.keras`.

For example:

    import ciranda.keras as hvd

    hvd.init()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss)
    batches = hvd.GlobalBatches(x, y, batch_size=64, shuffle=True)
    model.fit(batches, shuffle=False, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
"""

# ruff: noqa: E402 (a missing Keras is reported before it is imported)

from typing import TYPE_CHECKING

from ciranda._frameworks import require

require("keras", __name__)

from ciranda.keras import _versions

_versions.check()

from ciranda._frameworks import common as _common
from ciranda._frameworks.common import *
from ciranda._frameworks.objects import allgather_object as allgather_object
from ciranda._frameworks.objects import broadcast_object as broadcast_object
from ciranda._ops import barrier as barrier
from ciranda._ops import join as join
from ciranda.keras import callbacks as callbacks
from ciranda.keras import elastic as elastic
from ciranda.keras import functions
from ciranda.keras.compression import Compression as Compression
from ciranda.keras.compression import Compressor as Compressor
from ciranda.keras.data import GlobalBatches as GlobalBatches
from ciranda.keras.functions import *
from ciranda.keras.wrapping import DistributedOptimizer as DistributedOptimizer
from ciranda.keras.wrapping import PartialDistributedOptimizer as PartialDistributedOptimizer

if not TYPE_CHECKING:  # type checkers take them from the imports
    __all__ = [
        *_common.__all__,
        *functions.__all__,
        "Compression",
        "Compressor",
        "DistributedOptimizer",
        "GlobalBatches",
        "PartialDistributedOptimizer",
        "allgather_object",
        "barrier",
        "broadcast_object",
        "callbacks",
        "elastic",
        "join",
    ]
