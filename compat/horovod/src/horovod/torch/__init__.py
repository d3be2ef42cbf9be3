"""`horovod.torch`, served by `ciranda.torch`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horovod._names import attach
from horovod.torch import compression, functions, mpi_ops, optimizer, sync_batch_norm

if TYPE_CHECKING:
    from ciranda.torch import *

__getattr__, __dir__ = attach(__name__)
