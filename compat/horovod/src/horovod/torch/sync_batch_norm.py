"""`horovod.torch.sync_batch_norm`, served by Ciranda: batch normalisation over all ranks."""

from __future__ import annotations

from horovod._names import attach

__getattr__, __dir__ = attach(__name__)
