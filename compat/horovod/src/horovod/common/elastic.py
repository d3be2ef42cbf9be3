"""`horovod.common.elastic`, served by Ciranda: states, and running again from the last commit."""

from __future__ import annotations

from horovod._names import attach

__getattr__, __dir__ = attach(__name__)
