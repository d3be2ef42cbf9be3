"""`horovod.tensorflow.keras.elastic`, served by `ciranda.keras.elastic`: training that survives a failed collective."""

from __future__ import annotations

from ciranda.keras.elastic import (
    CommitStateCallback,
    KerasState,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
    run,
)

__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]
