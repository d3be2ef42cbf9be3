"""`horovod.torch.elastic.sampler`, served by Ciranda: samples that have not been used yet."""

from __future__ import annotations

from horovod._names import attach

__getattr__, __dir__ = attach(__name__)
