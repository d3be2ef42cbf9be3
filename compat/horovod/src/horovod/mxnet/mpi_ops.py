"""`horovod.mxnet.mpi_ops`, served by `ciranda.mxnet`: the operations, and who this process is."""

from __future__ import annotations

from horovod._names import attach

__getattr__, __dir__ = attach(__name__)
