"""Any mix of collectives in any world against NumPy in float64: ops, types, lengths, groups, factors and weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest
from expected import Array
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ranks import Ranks

import ciranda as hvd
from conftest import Circles

pytestmark = pytest.mark.multiprocess

FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
INTEGERS = ("uint8", "int32", "int64")
#: One to four ranks that share memory; two without; and two hosts of two, of which neighbours are on different ones.
WORLDS = {"1": 1, "2": 2, "3": 3, "4": 4, "tcp": 2, "hosts": 4}
REDUCTIONS = ("allreduce", "reduce", "reducescatter")
FACTORS = st.sampled_from([1.0, 0.5, -2.0, 0.1, 1 / 3, 3.0])


@dataclass(frozen=True)
class Call:
    """One call, the same on all ranks but for the values and the weight."""

    n_ranks: int
    collective: str
    root: int
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
        shape = (self.n_ranks, count)
        values = rng.uniform(0 if dtype == "uint8" else -8, 8, shape)
        if dtype in COMPLEX:
            values = values + 1j * rng.uniform(-8, 8, shape)
        arrays = list(values.astype(dtype))
        if self.collective == "allgather":  # ranks differ in the number of rows
            return [array[: len(array) * (rank + 1) // self.n_ranks] for rank, array in enumerate(arrays)]
        return arrays


@st.composite
def calls(draw: st.DrawFn, n_ranks: int) -> Call:
    collective = draw(st.sampled_from(["allreduce", "allreduce", *REDUCTIONS, "allgather", "broadcast"]))
    ops = ["sum", "average", "min", "max", *["weighted"] * (collective == "allreduce")]
    op = draw(st.sampled_from(ops if collective in REDUCTIONS else ["none"]))
    kinds = FLOATS + (() if op in ("min", "max") else COMPLEX)
    # The rounding of integers under factors is held to a table of its own, in C++.
    has_factors = collective in REDUCTIONS and draw(st.booleans())
    if op != "weighted" and not has_factors:
        kinds += INTEGERS
    lengths = st.one_of(st.integers(0, 40), st.sampled_from([1000, 20_000]))
    weight = st.one_of(st.just(0.0), st.floats(1e-6, 1e6))
    all_weights = st.tuples(*[weight] * n_ranks).filter(lambda weights: sum(weights) > 0)
    return Call(
        n_ranks=n_ranks,
        collective=collective,
        root=draw(st.integers(0, n_ranks - 1)),
        tensors=tuple(draw(st.lists(st.tuples(st.sampled_from(kinds), lengths), min_size=1, max_size=4))),
        op=op,
        prescale=draw(FACTORS) if has_factors else 1.0,
        postscale=draw(FACTORS) if has_factors else 1.0,
        weights=draw(all_weights) if op == "weighted" else None,
        in_place=collective in ("allreduce", "reduce", "broadcast") and draw(st.booleans()),
        seed=draw(st.integers(0, 2**32 - 1)),
    )


def expected(call: Call, inputs: list[Array]) -> tuple[Array, Array]:
    """Return the result in float64 (integers exactly), and the size by which its error is measured."""
    if call.collective not in REDUCTIONS:
        moved = np.concatenate(inputs) if call.collective == "allgather" else inputs[call.root]
        return moved, np.zeros(len(moved))
    if inputs[0].dtype.kind in "iu":
        wide = np.stack(inputs).astype(np.int64)
        if call.op in ("min", "max"):
            result = wide.min(axis=0) if call.op == "min" else wide.max(axis=0)
        else:
            result = wide.sum(axis=0)
            if call.op == "average":
                result = np.sign(result) * (np.abs(result) // call.n_ranks)
        return result, np.zeros_like(result)
    scaled = call.prescale * np.stack(inputs).astype(np.complex128 if inputs[0].dtype.kind == "c" else np.float64)
    if call.op in ("min", "max"):
        result = scaled.min(axis=0) if call.op == "min" else scaled.max(axis=0)
    else:
        weights = np.ones(call.n_ranks) if call.weights is None else np.array(call.weights)
        shares = weights if call.op == "sum" else weights / weights.sum()
        scaled = shares[:, None] * scaled
        result = scaled.sum(axis=0)
    return call.postscale * result, abs(call.postscale) * np.abs(scaled).sum(axis=0)


def _check_call(call: Call, results: list[Array] | None) -> bytes:
    """Return the bits of what should be the same on all ranks."""
    rank = hvd.rank()
    if results is None:
        assert call.collective == "reduce"
        assert rank != call.root
        return b""
    for index, result in enumerate(results):
        inputs = call.inputs(index)
        assert result.dtype == inputs[0].dtype
        if call.collective == "reduce" and rank != call.root:
            assert result.tobytes() == inputs[rank].tobytes()  # in place
            continue
        wanted, size = expected(call, inputs)
        if call.collective == "reducescatter":
            wanted, size = (np.array_split(each, call.n_ranks)[rank] for each in (wanted, size))
        if result.dtype.kind in "iu" or call.collective not in REDUCTIONS:
            assert result.tobytes() == wanted.astype(result.dtype).tobytes(), call
            continue
        of_dtype = ml_dtypes.finfo(result.dtype)
        allowed = float(of_dtype.eps) * (call.n_ranks + 3) * size + float(of_dtype.smallest_subnormal)
        assert np.all(np.abs(result.astype(wanted.dtype) - wanted) <= allowed), call
    is_same_on_all = call.collective in ("allreduce", "allgather", "broadcast")
    return b"".join(result.tobytes() for result in results) if is_same_on_all else b""


def _submit(call: Call, name: str) -> hvd.Handle[Any]:
    arrays = [call.inputs(index)[hvd.rank()] for index in range(len(call.tensors))]
    start = getattr(hvd, f"grouped_{call.collective}_async{'_' if call.in_place else ''}")
    options: dict[str, Any] = {"name": name}
    if call.collective in ("reduce", "broadcast"):
        options["root_rank"] = call.root
    if call.collective in REDUCTIONS:
        options["op"] = getattr(hvd, "Average" if call.op == "weighted" else call.op.capitalize())
        options.update(prescale_factor=call.prescale, postscale_factor=call.postscale)
    if call.weights is not None:
        options["weight"] = call.weights[hvd.rank()]
    return cast("hvd.Handle[Any]", start(arrays, **options))


def _run(mix: list[Call]) -> bytes:
    """All in flight at once, submitted in another order on each rank, and so fused as it happens."""
    order = np.random.default_rng(hvd.rank()).permutation(len(mix))
    handles = {int(index): _submit(mix[index], f"property.{index}") for index in order}
    return b"".join(_check_call(call, hvd.synchronize(handles[index])) for index, call in enumerate(mix))


@pytest.fixture(scope="module")
def worlds(circles: Circles) -> Iterator[Callable[[str], Ranks]]:
    """The worlds of WORLDS, made when they are first asked for."""
    others: dict[str, Ranks] = {}

    def find(name: str) -> Ranks:
        if name.isdigit():
            return circles.of(int(name))
        if name not in others or others[name].is_broken:
            env_of = {
                "tcp": lambda _: {"CIRANDA_SHARED_MEMORY": "0"},
                "hosts": lambda rank: {"CIRANDA_HOST_ID": f"host{rank % 2}", "CIRANDA_HOST": f"host{rank % 2}"},
            }
            others[name] = Ranks(WORLDS[name], env_of=env_of[name])
        return others[name]

    yield find
    for ranks in others.values():
        ranks.close(expect_clean=not ranks.is_broken)


@st.composite
def mixes(draw: st.DrawFn) -> tuple[str, list[Call]]:
    world = draw(st.sampled_from(list(WORLDS)))
    return world, draw(st.lists(calls(WORLDS[world]), min_size=1, max_size=5))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mix=mixes())
def test_any_mix_of_collectives(worlds: Callable[[str], Ranks], mix: tuple[str, list[Call]]) -> None:
    world, its_calls = mix
    assert len(set(worlds(world).run(_run, its_calls, timeout=60))) == 1, "ranks got different bits"
