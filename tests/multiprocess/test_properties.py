"""Any mix of collectives in any world against NumPy, bit for bit: ops, types, lengths, groups, factors and weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest
from expected import Array, reduced
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ranks import Ranks

import ciranda as hvd
from conftest import Worlds

pytestmark = pytest.mark.multiprocess

FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
INTEGERS = ("uint8", "int32", "int64", "uint64")
#: One to four ranks that share memory; two without; and two hosts of two, of which neighbours are on different ones.
LAYOUTS = {"1": 1, "2": 2, "3": 3, "4": 4, "tcp": 2, "hosts": 4}
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
        """Return what each rank brings for a tensor. No sum of floats overflows; integers are of all sizes."""
        dtype, count = self.tensors[index]
        rng = np.random.default_rng([self.seed, index])
        shape = (self.n_ranks, count)
        if dtype in INTEGERS:
            limits = np.iinfo(dtype)
            values = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
            values >>= rng.integers(0, limits.bits, shape).astype(dtype)
        else:
            values = rng.uniform(-8, 8, shape)
            if dtype in COMPLEX:
                values = values + 1j * rng.uniform(-8, 8, shape)
        arrays = list(values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype))
        if self.collective == "allgather":  # ranks differ in the number of rows
            return [array[: len(array) * (rank + 1) // self.n_ranks] for rank, array in enumerate(arrays)]
        return arrays


@st.composite
def calls(draw: st.DrawFn, n_ranks: int) -> Call:
    collective = draw(st.sampled_from(["allreduce", "allreduce", *REDUCTIONS, "allgather", "broadcast"]))
    ops = ["sum", "average", "min", "max", *["weighted"] * (collective == "allreduce")]
    op = draw(st.sampled_from(ops if collective in REDUCTIONS else ["none"]))
    kinds = FLOATS + (() if op in ("min", "max") else COMPLEX)
    has_factors = collective in REDUCTIONS and draw(st.booleans())
    short = st.integers(0, 40)
    tensors = st.tuples(st.sampled_from(kinds), st.one_of(short, st.sampled_from([1000, 20_000])))
    if op != "weighted":
        of_integers = st.tuples(st.sampled_from(INTEGERS), short if has_factors else st.integers(0, 1000))
        tensors = st.one_of(tensors, of_integers)
    weight = st.one_of(st.just(0.0), st.floats(1e-6, 1e6))
    all_weights = st.tuples(*[weight] * n_ranks).filter(lambda weights: sum(weights) > 0)
    return Call(
        n_ranks=n_ranks,
        collective=collective,
        root=draw(st.integers(0, n_ranks - 1)),
        tensors=tuple(draw(st.lists(tensors, min_size=1, max_size=4))),
        op=op,
        prescale=draw(FACTORS) if has_factors else 1.0,
        postscale=draw(FACTORS) if has_factors else 1.0,
        weights=draw(all_weights) if op == "weighted" else None,
        in_place=collective in ("allreduce", "reduce", "broadcast") and draw(st.booleans()),
        seed=draw(st.integers(0, 2**32 - 1)),
    )


def expected(call: Call, inputs: list[Array]) -> Array:
    """Return the whole result, whoever gets which part of it."""
    if call.collective not in REDUCTIONS:
        return np.concatenate(inputs) if call.collective == "allgather" else inputs[call.root]
    op = "average" if call.op == "weighted" else call.op
    return reduced(inputs, op, call.prescale, call.postscale, call.weights)


def _check_call(call: Call, results: list[Array] | None) -> bytes:
    """Return the bits of what should be the same on all ranks."""
    rank = hvd.rank()
    if results is None:
        assert call.collective == "reduce"
        assert rank != call.root
        return b""
    assert len(results) == len(call.tensors), call
    for index, result in enumerate(results):
        inputs = call.inputs(index)
        assert result.dtype == inputs[0].dtype
        if call.collective == "reduce" and rank != call.root:
            assert result.tobytes() == inputs[rank].tobytes()  # in place
            continue
        wanted = expected(call, inputs)
        if call.collective == "reducescatter":
            wanted = np.array_split(wanted, call.n_ranks)[rank]
        assert result.tobytes() == wanted.tobytes(), call
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


def _run(mix: list[Call], n_times: int, name: str = "property") -> bytes:
    """All in flight at once, submitted in another order on each rank, and so fused as it happens.

    The names may have stood for other calls before. From the second time on they stand for the same.
    """
    order = np.random.default_rng(hvd.rank()).permutation(len(mix))
    for _ in range(n_times):
        handles = {int(index): _submit(mix[index], f"{name}.{index}") for index in order}
        bits = b"".join(_check_call(call, hvd.synchronize(handles[index])) for index, call in enumerate(mix))
    return bits


@pytest.fixture(scope="module")
def layouts(worlds: Worlds) -> Iterator[Callable[[str], Ranks]]:
    """The worlds of LAYOUTS, made when they are first asked for."""
    others: dict[str, Ranks] = {}

    def find(name: str) -> Ranks:
        if name.isdigit():
            return worlds.of(int(name))
        if name in others and others[name].is_broken:
            others.pop(name).close(expect_clean=False)
        if name not in others:
            env_of = {
                "tcp": lambda _: {"CIRANDA_SHARED_MEMORY": "0"},
                "hosts": lambda rank: {"CIRANDA_HOST_ID": f"host{rank % 2}", "CIRANDA_HOST": f"host{rank % 2}"},
            }
            others[name] = Ranks(LAYOUTS[name], env_of=env_of[name])
        return others[name]

    yield find
    for ranks in others.values():
        ranks.close(expect_clean=not ranks.is_broken)


@st.composite
def mixes(draw: st.DrawFn) -> tuple[str, list[Call]]:
    layout = draw(st.sampled_from(list(LAYOUTS)))
    return layout, draw(st.lists(calls(LAYOUTS[layout]), min_size=1, max_size=5))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mix=mixes(), n_times=st.sampled_from([1, 2, 5]))
def test_any_mix_of_collectives(layouts: Callable[[str], Ranks], mix: tuple[str, list[Call]], n_times: int) -> None:
    layout, its_calls = mix
    assert len(set(layouts(layout).run(_run, its_calls, n_times))) == 1, "ranks got different bits"


def _plain(collective: str, op: str = "none", in_place: bool = False) -> Call:
    return Call(
        n_ranks=2,
        collective=collective,
        root=0,
        tensors=(("float32", 27), ("int64", 5)),
        op=op,
        prescale=1.0,
        postscale=1.0,
        weights=None,
        in_place=in_place,
        seed=571,
    )


@pytest.mark.parametrize("layout", ["2", "tcp"])
def test_names_that_stand_for_other_calls(layouts: Callable[[str], Ranks], layout: str) -> None:
    """What could travel together when its order began to be learned, and no longer can when it is."""
    sums = [_plain("allreduce", "sum") for _ in range(3)]
    others = [_plain("reducescatter", "max"), _plain("reduce", "min", in_place=True), _plain("broadcast")]
    for mix, n_times in ((sums, 2), (others, 5), (sums, 5), (others[::-1], 5)):
        layouts(layout).run(_run, mix, n_times, "other")
