"""`horovod.torch.functions`, served by Ciranda: objects, parameters and optimizer states."""

from __future__ import annotations

from horovod._names import attach

__getattr__, __dir__ = attach(__name__)
