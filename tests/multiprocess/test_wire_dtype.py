"""float32 that travels as bfloat16: exactly what is rounded, whatever the size and the way."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from expected import Array, reduced, values
from ranks import Ranks

import ciranda as hvd

pytestmark = pytest.mark.multiprocess

COUNTS = (1, 7, 300, 5_000, 100_003, 400_000)  # in one shot, two shots, by hosts
AS_BFLOAT16 = {"CIRANDA_WIRE_DTYPE": "bf16"}
OVER_TCP = {**AS_BFLOAT16, "CIRANDA_SHARED_MEMORY": "0"}
WAYS = {
    "default": {},
    "one shot": {"CIRANDA_ALGORITHM": "one-shot"},
    "two shots": {"CIRANDA_ALGORITHM": "two-shot"},
    "by hosts": {"CIRANDA_ALGORITHM": "by-hosts"},
    "doubling": {"CIRANDA_ALGORITHM": "doubling"},
    "three sockets": {"CIRANDA_SOCKETS": "3"},
}


def _rounded(wide: Array) -> Array:
    return wide.astype(ml_dtypes.bfloat16).astype(np.float32)


def _sums_are_exact(n_together: int) -> None:
    for turn in range(3):
        handles = {count: hvd.allreduce_async(_input(hvd.rank(), count, turn), name=f"{count}") for count in COUNTS}
        for count in COUNTS:
            inputs = [_input(rank, count, turn) for rank in range(hvd.size())]
            parts = [_rounded(reduced(inputs[i : i + n_together], "sum")) for i in range(0, hvd.size(), n_together)]
            expected = _rounded(reduced(parts, "average", divisor=hvd.size()))
            np.testing.assert_array_equal(hvd.synchronize(handles[count]), expected)


def _input(rank: int, count: int, seed: int) -> Array:
    return values(rank, count, "float32", "average", seed)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n_ranks", [2, 3])
def test_a_host_with_one_rank_rounds_its_input(n_ranks: int, way: str) -> None:
    with Ranks(n_ranks, env={**OVER_TCP, **WAYS[way]}) as ranks:
        ranks.run(_sums_are_exact, 1)


def _host_of(rank: int) -> dict[str, str]:
    name = f"host{rank // 2}"
    return {"CIRANDA_HOST_ID": name, "CIRANDA_HOST": name}


@pytest.mark.parametrize("way", WAYS)
def test_a_host_with_several_ranks_rounds_their_sum(way: str) -> None:
    with Ranks(4, env={**AS_BFLOAT16, **WAYS[way]}, env_of=_host_of) as ranks:
        ranks.run(_sums_are_exact, 2)


def _others_are_not_rounded() -> None:
    third = np.float32(1 / 3)
    assert hvd.allreduce(np.full(1000, 1 / 3), op=hvd.Sum)[-1] == 2 / 3
    assert hvd.allreduce(np.full(1000, 1_000_003), op=hvd.Sum)[-1] == 2_000_006
    assert hvd.broadcast(np.full(1000, third), 0)[-1] == third
    assert hvd.allgather(np.full(1000, third))[-1] == third
    assert hvd.reducescatter(np.full(1000, third), op=hvd.Max)[-1] == third


def test_nothing_else_is_rounded() -> None:
    with Ranks(2, env=OVER_TCP) as ranks:
        ranks.run(_others_are_not_rounded)


def _is_exact() -> bool:
    return bool(hvd.allreduce(np.full(100_000, np.float32(1 / 3)), op=hvd.Max)[-1] == np.float32(1 / 3))


def test_within_a_host_nothing_is_rounded() -> None:
    with Ranks(2, env=AS_BFLOAT16) as ranks:
        assert all(ranks.run(_is_exact))
