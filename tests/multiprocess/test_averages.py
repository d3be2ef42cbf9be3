"""A plain average is the sum in rank order, divided by the number of ranks: bit for bit, whichever way it takes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from expected import Array, reduced
from ranks import Ranks

import ciranda as hvd

pytestmark = pytest.mark.multiprocess

DTYPES = ["float16", ml_dtypes.bfloat16, "float32", "float64", "complex64", "int8", "int32", "int64", "uint64"]
#: Met for or swapped, in one shot; and in two shots some types only.
COUNTS = (3, 300, 5_000)
LARGE = ("float32", ml_dtypes.bfloat16, "int32")
WORLDS: dict[str, dict[str, str]] = {
    "shared memory": {},
    "tcp": {"CIRANDA_SHARED_MEMORY": "0"},
    "no direct rounds": {"CIRANDA_SHARED_MEMORY": "0", "CIRANDA_DIRECT_ROUNDS": "0"},
    "doubling": {"CIRANDA_SHARED_MEMORY": "0", "CIRANDA_ALGORITHM": "doubling"},
    "hosts": {"CIRANDA_ALGORITHM": "by-hosts"},
}


def _input(rank: int, count: int, dtype: Any) -> Array:
    rng = np.random.default_rng([rank, count])
    if np.dtype(dtype).kind in "ui":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, count, dtype, endpoint=True)
    values = rng.normal(size=count) + (1j * rng.normal(size=count) if dtype == "complex64" else 0)
    return values.astype(dtype)


def _same(result: Array, wanted: Array, *case: object) -> None:
    assert result.tobytes() == wanted.tobytes(), case


def _check_ways(dtype: Any, count: int) -> None:
    inputs = [_input(rank, count, dtype) for rank in range(hvd.size())]
    mine = inputs[hvd.rank()]
    wanted = reduced(inputs, "average")
    if dtype in ("float32", "float64") and count > 3:
        assert wanted.tobytes() != (reduced(inputs, "sum") * wanted.dtype.type(1 / hvd.size())).tobytes()
    for turn in range(4):  # blocking calls of a name: through the log, then met for or swapped
        _same(hvd.allreduce(mine, name=f"{np.dtype(dtype)} {count}"), wanted, dtype, count, turn)
    shared = hvd.empty(count, dtype)
    shared[:] = mine
    _same(hvd.allreduce_(shared), wanted, dtype, count, "in place")
    for result in hvd.grouped_allreduce([mine, mine]):
        _same(result, wanted, dtype, count, "grouped")
    whole = hvd.reduce(mine, root_rank=1)
    assert whole is None or whole.tobytes() == wanted.tobytes()
    _same(hvd.reducescatter(mine), np.array_split(wanted, hvd.size())[hvd.rank()], dtype, count, "reducescatter")


def _check_factors(dtype: Any) -> None:
    inputs = [_input(rank, 50, dtype) for rank in range(hvd.size())]
    for prescale, postscale in ((1.0, 3.0), (0.1, 1.0), (1 / 3, -0.7)):
        result = hvd.allreduce(inputs[hvd.rank()], prescale_factor=prescale, postscale_factor=postscale)
        _same(result, reduced(inputs, "average", prescale, postscale), dtype, prescale, postscale)


def _check_joined(dtype: Any) -> None:
    """The last rank brings nothing any more: the others are divided by their number, or by that of all."""
    n = hvd.size()
    inputs = [_input(rank, 5_000, dtype) for rank in range(n - 1)]
    if hvd.rank() < n - 1:
        _same(hvd.allreduce(inputs[hvd.rank()]), reduced(inputs, "average"), dtype)
        _same(hvd.allreduce(inputs[hvd.rank()], divisor="world"), reduced(inputs, "average", divisor=n), dtype)
    hvd.join()


def _check_everything() -> None:
    for dtype in DTYPES:
        for count in (*COUNTS, 100_003) if dtype in LARGE else COUNTS:
            _check_ways(dtype, count)
        _check_factors(dtype)
        _check_joined(dtype)


@pytest.mark.parametrize("world", WORLDS)
def test_of_three_ranks(world: str) -> None:
    def host_of(rank: int) -> dict[str, str]:
        name = f"host{rank // 2}"
        return {"CIRANDA_HOST_ID": name, "CIRANDA_HOST": name} if world == "hosts" else {}

    with Ranks(3, env=WORLDS[world], env_of=host_of) as ranks:
        ranks.run(_check_everything)


def _check_process_set() -> None:
    some = hvd.add_process_set([0, 2, 3])
    for dtype in DTYPES:
        inputs = [_input(rank, 5_000, dtype) for rank in some.ranks or []]
        if some.included():
            mine = _input(hvd.rank(), 5_000, dtype)
            _same(hvd.allreduce(mine, process_set=some), reduced(inputs, "average"), dtype)
    hvd.remove_process_set(some)
    _check_joined("float32")  # three of four


def test_of_three_among_four(worlds: Any) -> None:
    worlds.of(4).run(_check_process_set)


def _check_equal() -> None:
    """In 16 bits equal numbers average to themselves; and so do the largest integers, whose sum has no room in 64."""
    for dtype in ("float16", ml_dtypes.bfloat16):
        bits = np.arange(2**16, dtype=np.uint16)
        every = bits.view(dtype)
        every = every[np.isfinite(every) & (np.abs(every.astype(np.float32)) < 2.0**125)]
        _same(hvd.allreduce(every), every, dtype)
    for dtype in ("int64", "uint64"):
        limits = np.iinfo(dtype)
        largest = np.array([limits.min, limits.max, limits.max // 2 + 1], dtype)
        _same(hvd.allreduce(largest), largest, dtype)
        _same(hvd.allreduce(largest // 4, prescale_factor=2.0, postscale_factor=2.0), largest // 4 * 4, dtype)


def test_equal_inputs_average_to_themselves(world: Ranks) -> None:
    world.run(_check_equal)
