"""`horovod.tensorflow.functions`, served by `ciranda.tensorflow`: the same variables and objects on all ranks."""

from __future__ import annotations

from ciranda.tensorflow import allgather_object, broadcast_object, broadcast_object_fn, broadcast_variables
