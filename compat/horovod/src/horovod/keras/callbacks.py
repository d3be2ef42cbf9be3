"""`horovod.keras.callbacks`, served by `ciranda.keras.callbacks`."""

from __future__ import annotations

from ciranda.keras.callbacks import (
    BestModelCheckpoint,
    BroadcastGlobalVariablesCallback,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
    MetricAverageCallback,
)
