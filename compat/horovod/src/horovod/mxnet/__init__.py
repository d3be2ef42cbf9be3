"""`horovod.mxnet`, served by `ciranda.mxnet`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ciranda.mxnet  # says what is missing, where MXNet is
from horovod._names import attach
from horovod.mxnet import compression, functions, mpi_ops

if TYPE_CHECKING:
    from ciranda.mxnet import *

__getattr__, __dir__ = attach(__name__)
