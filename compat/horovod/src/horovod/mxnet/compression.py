"""`horovod.mxnet.compression`, served by `ciranda.mxnet`."""

from __future__ import annotations

from horovod._names import attach

__getattr__, __dir__ = attach(__name__)
