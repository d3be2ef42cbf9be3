"""Ciranda for PaddlePaddle: collectives in dygraph and in programs of either IR, and rewriters of programs.

For example:

    import ciranda.paddle as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(paddle.optimizer.Adam(1e-3))
    optimizer.minimize(loss)
"""

# ruff: noqa: E402 (require() reports a missing Paddle before the imports)

from typing import TYPE_CHECKING

from ciranda._frameworks import require

require("paddle", __name__)

import numpy.random  # noqa: F401 (the oldest Paddle fails where this comes after it)

from ciranda._frameworks import common as _common
from ciranda._frameworks import with_handles as _with_handles
from ciranda._frameworks.common import *
from ciranda._frameworks.with_handles import *
from ciranda._ops import barrier as barrier
from ciranda._ops import barrier_async as barrier_async
from ciranda._ops import join as join
from ciranda._ops import join_async as join_async
from ciranda.paddle import functions, operators, ops
from ciranda.paddle.compression import Compression as Compression
from ciranda.paddle.compression import Compressor as Compressor
from ciranda.paddle.failures import ciranda_errors as ciranda_errors
from ciranda.paddle.functions import *
from ciranda.paddle.operators import *
from ciranda.paddle.ops import *  # type: ignore[assignment]  # three are operators: see below
from ciranda.paddle.optimizer import DistributedOptimizer as DistributedOptimizer
from ciranda.paddle.transpiler import GradAllReduce as GradAllReduce
from ciranda.paddle.transpiler import LocalSGD as LocalSGD

# The package has the operators of these names, and not Horovod's functions.
allgather, broadcast, reducescatter = operators.allgather, operators.broadcast, operators.reducescatter

if not TYPE_CHECKING:  # type checkers take them from the imports
    __all__ = [
        *_common.__all__,
        *_with_handles.__all__,
        *functions.__all__,
        *{*operators.__all__, *ops.__all__},
        "Compression",
        "Compressor",
        "DistributedOptimizer",
        "GradAllReduce",
        "LocalSGD",
        "barrier",
        "barrier_async",
        "ciranda_errors",
        "join",
        "join_async",
    ]
