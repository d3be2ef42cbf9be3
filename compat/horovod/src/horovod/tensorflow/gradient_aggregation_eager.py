"""`horovod.tensorflow.gradient_aggregation_eager`: see `horovod.tensorflow.gradient_aggregation`."""

from __future__ import annotations

from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelperEager
