"""`horovod.mxnet.functions`, served by `ciranda.mxnet`: Python objects from rank to rank."""

from __future__ import annotations

from ciranda.mxnet import allgather_object, broadcast_object

__all__ = [
    "allgather_object",
    "broadcast_object",
]
