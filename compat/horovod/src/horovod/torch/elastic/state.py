"""`horovod.torch.elastic.state`, served by Ciranda: what survives."""

from __future__ import annotations

from horovod._names import attach

__getattr__, __dir__ = attach(__name__)
