"""`horovod.torch.elastic`, served by `ciranda.torch.elastic`: training that survives a failed collective."""

from __future__ import annotations

from horovod._names import attach
from horovod.torch.elastic import sampler, state

__getattr__, __dir__ = attach(__name__)
