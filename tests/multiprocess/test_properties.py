"""Allreduces of any kind against NumPy in float64: types, lengths, groups, factors, averages and weights, mixed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from expected import Array
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ciranda as hvd
from conftest import Circles

pytestmark = pytest.mark.multiprocess

N_RANKS = 3
FLOATS = ("float16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
INTEGERS = ("uint8", "int32", "int64")
FACTORS = st.sampled_from([1.0, 0.5, -2.0, 0.1, 1 / 3, 3.0])


@dataclass(frozen=True)
class Call:
    """One call, the same on all ranks but for the values and the weight."""

    tensors: tuple[tuple[str, int], ...]  # dtype and length of each; several make a group
    op: str
    prescale: float
    postscale: float
    weights: tuple[float, ...] | None
    in_place: bool
    seed: int

    def inputs(self, index: int) -> list[Array]:
        """Return what each rank brings for a tensor. No sum of these overflows."""
        dtype, count = self.tensors[index]
        rng = np.random.default_rng([self.seed, index])
        values = rng.uniform(0 if dtype == "uint8" else -8, 8, (N_RANKS, count))
        if dtype in COMPLEX:
            values = values + 1j * rng.uniform(-8, 8, (N_RANKS, count))
        return list(values.astype(dtype))


@st.composite
def calls(draw: st.DrawFn) -> Call:
    op = draw(st.sampled_from(["sum", "average", "weighted", "min", "max"]))
    kinds = FLOATS + (COMPLEX if op in ("sum", "average", "weighted") else ())
    # The rounding of integers under factors is held to a table of its own, in C++.
    has_factors = draw(st.booleans())
    if op != "weighted" and not has_factors:
        kinds += INTEGERS
    lengths = st.one_of(st.integers(0, 40), st.sampled_from([1000, 20_000]))
    weight = st.one_of(st.just(0.0), st.floats(1e-6, 1e6))
    all_weights = st.tuples(*[weight] * N_RANKS).filter(lambda weights: sum(weights) > 0)
    return Call(
        tensors=tuple(draw(st.lists(st.tuples(st.sampled_from(kinds), lengths), min_size=1, max_size=4))),
        op=op,
        prescale=draw(FACTORS) if has_factors else 1.0,
        postscale=draw(FACTORS) if has_factors else 1.0,
        weights=draw(all_weights) if op == "weighted" else None,
        in_place=draw(st.booleans()),
        seed=draw(st.integers(0, 2**32 - 1)),
    )


def expected(call: Call, inputs: list[Array]) -> tuple[Array, Array]:
    """Return the result in float64 (integers exactly), and the size by which its error is measured."""
    if inputs[0].dtype.kind in "iu":
        wide = np.stack(inputs).astype(np.int64)
        if call.op in ("min", "max"):
            result = wide.min(axis=0) if call.op == "min" else wide.max(axis=0)
        else:
            result = wide.sum(axis=0)
            if call.op == "average":
                result = np.sign(result) * (np.abs(result) // N_RANKS)
        return result, np.zeros_like(result)
    scaled = call.prescale * np.stack(inputs).astype(np.complex128 if inputs[0].dtype.kind == "c" else np.float64)
    if call.op in ("min", "max"):
        result = scaled.min(axis=0) if call.op == "min" else scaled.max(axis=0)
    else:
        weights = np.ones(N_RANKS) if call.weights is None else np.array(call.weights)
        shares = weights if call.op == "sum" else weights / weights.sum()
        scaled = shares[:, None] * scaled
        result = scaled.sum(axis=0)
    return call.postscale * result, abs(call.postscale) * np.abs(scaled).sum(axis=0)


def _check_call(call: Call, results: list[Array]) -> None:
    for index, result in enumerate(results):
        inputs = call.inputs(index)
        wanted, size = expected(call, inputs)
        assert result.dtype == inputs[0].dtype
        if result.dtype.kind in "iu":
            assert np.array_equal(result, wanted.astype(result.dtype)), call
            continue
        of_dtype = np.finfo(result.dtype)
        allowed = float(of_dtype.eps) * (N_RANKS + 3) * size + float(of_dtype.smallest_subnormal)
        assert np.all(np.abs(result.astype(wanted.dtype) - wanted) <= allowed), call


def _submit(call: Call, name: str) -> hvd.Handle[list[Array]]:
    arrays = [call.inputs(index)[hvd.rank()] for index in range(len(call.tensors))]
    ops = {"sum": hvd.Sum, "average": hvd.Average, "weighted": hvd.Average, "min": hvd.Min, "max": hvd.Max}
    start = hvd.grouped_allreduce_async_ if call.in_place else hvd.grouped_allreduce_async
    return start(
        arrays,
        name=name,
        op=ops[call.op],
        prescale_factor=call.prescale,
        postscale_factor=call.postscale,
        weight=None if call.weights is None else call.weights[hvd.rank()],
    )


def _run(mix: list[Call]) -> bytes:
    """All in flight at once, submitted in another order on each rank, and so fused as it happens."""
    order = np.random.default_rng(hvd.rank()).permutation(len(mix))
    handles = {int(index): _submit(mix[index], f"property.{index}") for index in order}
    bits = b""
    for index, call in enumerate(mix):
        results = hvd.synchronize(handles[index])
        _check_call(call, results)
        bits += b"".join(result.tobytes() for result in results)
    return bits


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mix=st.lists(calls(), min_size=1, max_size=5))
def test_any_mix_of_allreduces(circles: Circles, mix: list[Call]) -> None:
    assert len(set(circles.of(N_RANKS).run(_run, mix, timeout=60))) == 1, "ranks got different bits"
