"""More ranks on a host than watch each other, which note whom they have written to."""

from __future__ import annotations

import signal

import numpy as np
import pytest
from ranks import Ranks

import ciranda as hvd
from ciranda.errors import RanksLostError

pytestmark = pytest.mark.multiprocess

N_RANKS = 18
UNWATCHED = 6  # by rank 0, at whose places 1, 2, 4, 8, 10, 14, 16 and 17 are those that it watches


def _inputs(rank: int) -> list[np.ndarray]:
    return [np.random.default_rng([rank, i]).integers(-100, 100, 10**i).astype(np.float32) for i in range(6)]


def _reduced() -> None:
    expected = [np.sum(each, axis=0) for each in zip(*map(_inputs, range(N_RANKS)), strict=True)]
    # By all ranks in another order: those that are late are heard of by messages.
    order = np.random.default_rng(hvd.rank()).permutation(len(expected))
    inputs = _inputs(hvd.rank())
    for _ in range(3):
        handles = {i: hvd.allreduce_async(inputs[i], op=hvd.Sum, name=f"tensor {i}") for i in order}
        for i, handle in handles.items():
            np.testing.assert_array_equal(hvd.synchronize(handle), expected[i])
        rows = hvd.allgather(np.full((hvd.rank() % 3, 2), hvd.rank()), name="rows")
        assert rows[:, 0].tolist() == [rank for rank in range(N_RANKS) for _ in range(rank % 3)]


def _until_one_is_lost() -> str:
    try:
        for i in range(1_000_000):
            hvd.allreduce(np.ones(3), name=f"step {i % 7}")
    except RanksLostError as error:
        return str(error)
    return "nobody was lost"


def test_all_reduce_and_each_hears_who_is_lost() -> None:
    others = [rank for rank in range(N_RANKS) if rank != UNWATCHED]
    with Ranks(N_RANKS) as ranks:
        ranks.run(_reduced)
        for rank in others:
            ranks.start(rank, _until_one_is_lost)
        ranks.signal(UNWATCHED, signal.SIGKILL)
        for rank in others:
            assert f"rank {UNWATCHED} (" in ranks.outcome(rank).value
