"""`horovod.tensorflow.sync_batch_norm`, served by `ciranda.tensorflow`: batch normalization over all ranks."""

from __future__ import annotations

from ciranda.tensorflow import SyncBatchNormalization
