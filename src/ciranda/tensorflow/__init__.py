"""Ciranda for TensorFlow, with the names and signatures of `horovod.tensorflow`.

For example:

    import ciranda.tensorflow as hvd

    hvd.init()
    total = hvd.allreduce(tf.constant([1.0]), op=hvd.Sum)
"""

# ruff: noqa: E402 (require() reports a missing TensorFlow before the imports)

from typing import TYPE_CHECKING

from ciranda._frameworks import require

require("tensorflow", __name__)

from ciranda._frameworks import common as _common
from ciranda._frameworks import with_handles as _with_handles
from ciranda._frameworks.common import *
from ciranda._frameworks.with_handles import *
from ciranda.tensorflow import at_once, functions, ops, places
from ciranda.tensorflow import elastic as elastic
from ciranda.tensorflow.at_once import *
from ciranda.tensorflow.compression import Compression as Compression
from ciranda.tensorflow.compression import Compressor as Compressor
from ciranda.tensorflow.failures import as_ciranda_error as as_ciranda_error
from ciranda.tensorflow.functions import *
from ciranda.tensorflow.ops import *
from ciranda.tensorflow.optimizer import DistributedOptimizer as DistributedOptimizer
from ciranda.tensorflow.places import *
from ciranda.tensorflow.sync_batch_norm import SyncBatchNormalization as SyncBatchNormalization
from ciranda.tensorflow.tape import DistributedGradientTape as DistributedGradientTape
from ciranda.tensorflow.tape import PartialDistributedGradientTape as PartialDistributedGradientTape

if not TYPE_CHECKING:  # type checkers take them from the imports
    __all__ = [
        *_common.__all__,
        *_with_handles.__all__,
        *at_once.__all__,
        *functions.__all__,
        *ops.__all__,
        *places.__all__,
        "Compression",
        "Compressor",
        "DistributedGradientTape",
        "DistributedOptimizer",
        "PartialDistributedGradientTape",
        "SyncBatchNormalization",
        "as_ciranda_error",
        "elastic",
    ]
