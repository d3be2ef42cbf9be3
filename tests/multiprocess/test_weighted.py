"""Weighted averages over real processes, against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from ranks import Ranks

import ciranda as hvd

pytestmark = pytest.mark.multiprocess

TOLERANCES = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-14, "complex64": 1e-6, "complex128": 1e-14}


def _check_types() -> bytes:
    results = b""
    weights = [3.0 * rank + 0.5 for rank in range(hvd.size())]
    for dtype, tolerance in TOLERANCES.items():
        for count in (0, 1, 1000, 70_001):
            inputs = [np.random.default_rng(rank).uniform(-1, 1, count).astype(dtype) for rank in range(hvd.size())]
            result = hvd.allreduce(inputs[hvd.rank()], weight=weights[hvd.rank()], postscale_factor=2.0)
            wide = np.stack(inputs).astype(np.complex128)
            wanted = 2 * np.average(wide, axis=0, weights=weights)
            np.testing.assert_allclose(result.astype(np.complex128), wanted, rtol=0, atol=4 * tolerance)
            in_place = inputs[hvd.rank()].copy()
            hvd.allreduce_(in_place, weight=weights[hvd.rank()], postscale_factor=2.0)
            assert in_place.tobytes() == result.tobytes()
            results += result.tobytes()
    return results


def test_every_type_and_length(world: Ranks) -> None:
    assert len(set(world.run(_check_types))) == 1, "ranks got different bits"


def _check_uneven_batches() -> None:
    """A mean over uneven batches, weighted by their sizes, is the mean over the whole batch."""
    whole = np.random.default_rng(0).normal(size=(101, 7))
    cuts = [101 * rank * rank // hvd.size() ** 2 for rank in range(hvd.size() + 1)]
    mine = whole[cuts[hvd.rank()] : cuts[hvd.rank() + 1]]
    result = hvd.allreduce(mine.mean(axis=0), weight=len(mine), name="gradient")
    np.testing.assert_allclose(result, whole.mean(axis=0), rtol=1e-12)
    plain = hvd.allreduce(mine.mean(axis=0), name="plain")
    assert hvd.size() == 1 or not np.allclose(plain, whole.mean(axis=0), rtol=1e-6)


def test_uneven_batches_equal_one_process_with_the_whole_batch(world: Ranks) -> None:
    world.run(_check_uneven_batches)


def _check_changing_weights() -> None:
    n, rank = hvd.size(), hvd.rank()
    for step in range(5):  # the same name: only the first step is agreed on in full
        weight = 1.0 + (rank + step) % n
        total = sum(range(1, n + 1))
        result = hvd.allreduce(np.full(10, float(rank)), weight=weight, name="step")
        wanted = sum(r * (1.0 + (r + step) % n) for r in range(n)) / total
        np.testing.assert_allclose(result, wanted)
    handles = [hvd.allreduce_async(np.full(i + 1, float(rank)), weight=1 + rank * i, name=f"h{i}") for i in range(10)]
    for i, handle in enumerate(handles):
        wanted = sum(r * (1 + r * i) for r in range(n)) / sum(1 + r * i for r in range(n))
        np.testing.assert_allclose(hvd.synchronize(handle), np.full(i + 1, wanted))
    arrays = [np.full(3, rank, np.float32), np.full(5, -rank, np.float64)]
    for result, sign in zip(hvd.grouped_allreduce(arrays, weight=rank + 1), (1, -1), strict=True):
        np.testing.assert_allclose(result, sign * sum(r * (r + 1) for r in range(n)) / total, rtol=1e-6)


def test_weights_may_change_with_every_call(world: Ranks) -> None:
    world.run(_check_changing_weights)


def _check_zero() -> None:
    mine = np.full(4, 7.0) if hvd.rank() == 0 else np.full(4, 1e300)
    result = hvd.allreduce(mine, weight=float(hvd.rank() == 0))
    np.testing.assert_array_equal(result, np.full(4, 7.0))
    huge = hvd.allreduce(np.full(4, 2.0, np.float16), weight=1e300)
    np.testing.assert_array_equal(huge, np.full(4, 2.0))


def test_only_the_ratio_of_weights_counts(world: Ranks) -> None:
    world.run(_check_zero)


def _check_errors() -> None:
    x = np.ones(3, np.float32)
    last = hvd.size() - 1
    for bad in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match=rf"'bad'.* of rank {last} is not a finite number, 0 or more"):
            hvd.allreduce(x, weight=bad if hvd.rank() == last else 1.0, name="bad")
    with pytest.raises(ValueError, match="'none': the ranks' weights add up to 0"):
        hvd.allreduce(x, weight=0.0, name="none")
    with pytest.raises(ValueError, match="weight needs op=Average"):
        hvd.allreduce(x, weight=1.0, op=hvd.Sum)
    with pytest.raises(ValueError, match="no weighted average of int32"):
        hvd.allreduce(np.ones(3, np.int32), weight=1.0)
    if last > 0:
        with pytest.raises(hvd.errors.MismatchError, match=r"weight given on rank 0 but none on rank"):
            hvd.allreduce(x, weight=1.0 if hvd.rank() == 0 else None, name="some")
    assert hvd.allreduce(x, weight=2.0, name="bad").tolist() == [1, 1, 1]


def test_errors_are_the_same_on_all_ranks_and_the_engine_goes_on(world: Ranks) -> None:
    world.run(_check_errors)
