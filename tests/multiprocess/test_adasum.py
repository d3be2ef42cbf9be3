"""Adasum over real processes, against its definition in float64."""

from __future__ import annotations

import numpy as np
import pytest
from expected import Array
from ranks import Ranks

import ciranda as hvd

pytestmark = pytest.mark.multiprocess

COUNTS = [0, 1, 5, 1000, 70_001]
TOLERANCES = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-12}


def _pair(a: Array, b: Array) -> Array:
    product, of_a, of_b = a @ b, a @ a, b @ b
    share_of_a = 1 - product / (2 * of_a) if of_a else 1.0
    share_of_b = 1 - product / (2 * of_b) if of_b else 1.0
    return np.asarray(share_of_a * a + share_of_b * b)


def adasum(inputs: list[Array]) -> Array:
    """Combine neighbours, then their results, until one is left: the left part is the largest power of two."""
    if len(inputs) == 1:
        return inputs[0].astype(np.float64)
    left = 1 << ((len(inputs) - 1).bit_length() - 1)
    return _pair(adasum(inputs[:left]), adasum(inputs[left:]))


def _inputs(count: int, dtype: str, seed: int = 0) -> list[Array]:
    return [np.random.default_rng([seed, rank]).uniform(-1, 2, count).astype(dtype) for rank in range(hvd.size())]


def _check(actual: Array, inputs: list[Array], factor: float = 1.0) -> None:
    wanted = adasum(inputs) * factor
    assert actual.dtype == inputs[0].dtype
    tolerance = TOLERANCES[actual.dtype.name] * max(1.0, float(np.max(np.abs(wanted), initial=0)))
    np.testing.assert_allclose(actual.astype(np.float64), wanted, rtol=0, atol=tolerance)


def _check_types_and_lengths() -> bytes:
    results = b""
    for dtype in TOLERANCES:
        for count in COUNTS:
            inputs = _inputs(count, dtype)
            result = hvd.allreduce(inputs[hvd.rank()], op=hvd.Adasum, name=f"{dtype}.{count}")
            _check(result, inputs)
            results += result.tobytes()
    return results


def test_every_type_and_length(world: Ranks) -> None:
    results = world.run(_check_types_and_lengths)
    assert len(set(results)) == 1, "ranks got different bits"


def _check_group() -> None:
    groups = [_inputs(count, dtype, seed=count) for count in COUNTS for dtype in TOLERANCES]
    results = hvd.grouped_allreduce([inputs[hvd.rank()] for inputs in groups], op=hvd.Adasum, name="group")
    for result, inputs in zip(results, groups, strict=True):
        _check(result, inputs)  # each tensor is a vector of its own
        alone = hvd.allreduce(inputs[hvd.rank()], op=hvd.Adasum)
        assert alone.tobytes() == result.tobytes()


def test_tensors_of_a_group_are_vectors_of_their_own(world: Ranks) -> None:
    world.run(_check_group)


def _check_in_flight() -> None:
    arrays = [_inputs(1000 + i, "float32", seed=i) for i in range(20)]
    mine = [inputs[hvd.rank()].copy() for inputs in arrays]
    handles = [hvd.allreduce_async_(array, op=hvd.Adasum, name=f"{i}") for i, array in enumerate(mine)]
    for handle, inputs in zip(handles, arrays, strict=True):
        _check(hvd.synchronize(handle), inputs)


def test_many_at_once(world: Ranks) -> None:
    world.run(_check_in_flight)


def _check_factors_and_refusals() -> None:
    inputs = _inputs(1000, "float32")
    factors = {"prescale_factor": 0.5, "postscale_factor": -3.0}
    _check(hvd.allreduce(inputs[hvd.rank()], op=hvd.Adasum, **factors), inputs, -1.5)
    with pytest.raises(ValueError, match=r"no adasum of int32\. adasum takes float16, bfloat16, float32, float64;"):
        hvd.allreduce(np.zeros(3, np.int32), op=hvd.Adasum)


def test_factors_and_what_is_refused(world: Ranks) -> None:
    world.run(_check_factors_and_refusals)
