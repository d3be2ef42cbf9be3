"""`horovod.data.data_loader_base`, served by `ciranda.data`."""

from __future__ import annotations

from horovod._names import attach

__getattr__, __dir__ = attach(__name__)
