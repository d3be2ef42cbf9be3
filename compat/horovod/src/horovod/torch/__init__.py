"""`horovod.torch`, served by `ciranda.torch`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horovod._names import attach
from horovod.torch import compression, elastic, functions, mpi_ops, optimizer, sync_batch_norm

if TYPE_CHECKING:
    from ciranda.torch import *  # type: ignore[no-redef]

__getattr__, __dir__ = attach(__name__)
