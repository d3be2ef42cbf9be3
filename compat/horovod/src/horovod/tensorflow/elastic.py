"""`horovod.tensorflow.elastic`, served by `ciranda.tensorflow.elastic`: training that survives a failed collective."""

from __future__ import annotations

from ciranda.tensorflow.elastic import TensorFlowKerasState, TensorFlowState, run

__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]
