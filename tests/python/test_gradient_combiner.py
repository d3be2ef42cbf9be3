"""What all frameworks' optimizers and tapes do with gradients, without any framework, in a world of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ciranda
from ciranda._frameworks.compression import NoneCompressor
from ciranda._frameworks.gradients import GradientCombiner
from ciranda._frameworks.options import Options
from ciranda.numpy import ops

pytestmark = pytest.mark.usefixtures("alone")


class _Operations:
    """NumPy's, which compress nothing."""

    @staticmethod
    def grouped_allreduce(tensors: Any, *, compression: type, divisor: str, **how: Any) -> Any:
        assert (compression, divisor) == (NoneCompressor, "contributors")
        return ops.grouped_allreduce(tensors, **how)


class _Variable:
    """What a gradient belongs to."""


@pytest.mark.parametrize("scales_local", [True, False])
@pytest.mark.parametrize("passes", [1, 4])
def test_local_gradients_are_scaled_as_the_combined_ones(scales_local: bool, passes: int) -> None:
    """By 1 / passes, for the mean of accumulated passes; by 1 / n beside it, if so."""
    options = Options(NoneCompressor, passes, ciranda.Average, 1.0, False, ciranda.global_process_set)
    options.scale_local = scales_local
    combiner = GradientCombiner(lambda: _Operations, "scaled", options, divided_by_size=lambda gradient: gradient / 8)  # type: ignore[arg-type,return-value]
    variables = [_Variable() for _ in range(3)]
    combiner.keep_local(variables[1])
    gradients = [np.full(3, 16.0), np.full(2, 16.0), None]
    shared, own, none = combiner.combined(gradients, variables, 1 / passes)
    assert shared.tolist() == [16.0 / passes] * 3
    assert own.tolist() == [16.0 / passes / (8 if scales_local else 1)] * 2
    assert none is None
