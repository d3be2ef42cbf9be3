"""`horovod.mxnet.functions`, served by `ciranda.mxnet`: Python objects from rank to rank."""

from __future__ import annotations

from horovod._names import attach

__getattr__, __dir__ = attach(__name__)
