"""What differs between ranks though it should not: found, and named on every rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ranks import Ranks

import ciranda as hvd
from ciranda.errors import MismatchError

pytestmark = pytest.mark.multiprocess


def _go_on() -> None:
    for _ in range(20):
        hvd.allreduce(np.ones(3), name="later")


def _careless() -> str:
    """Rank 1 gives two tensors of a group the same memory, so that one result overwrites the other."""
    for _ in range(20):
        hvd.allreduce(np.arange(1000.0), name="fine")
    memory = np.ones(4)
    first, second = np.ones(4), np.full(4, 5.0)
    if hvd.rank() == 1:
        first = second = memory
    hvd.grouped_broadcast_([first, second], root_rank=0, name="pair")
    with pytest.raises(MismatchError) as raised:
        _go_on()
    for step in range(100):  # the engine goes on
        assert hvd.allreduce(np.ones(3), op=hvd.Sum, name=f"after{step}")[0] == hvd.size()
    return str(raised.value)


@pytest.mark.parametrize("shared_memory", ["0", "1"])
def test_a_result_that_differs_is_named_on_every_rank(shared_memory: str) -> None:
    env = {"CIRANDA_CHECK_CONSISTENCY": "8", "CIRANDA_SHARED_MEMORY": shared_memory}
    with Ranks(3, env=env) as ranks:
        texts = ranks.run(_careless)
    assert len(set(texts)) == 1
    assert "result of broadcast 'pair', tensor 0 of the group has other bits on rank 1 than on ranks 0, 2" in texts[0]


def test_rank_0_decides_whether_results_are_compared() -> None:
    with Ranks(3, env_of=lambda rank: {"CIRANDA_CHECK_CONSISTENCY": "8" if rank == 0 else "0"}) as ranks:
        assert all("rank 1" in text for text in ranks.run(_careless))


def _check_in_a_set(changed: dict[str, np.ndarray[Any, Any]], last: int) -> None:
    pair = hvd.add_process_set([0, last])
    if hvd.rank() in (0, last):
        with pytest.raises(MismatchError, match=f"on rank {last} than on rank 0"):
            hvd.check_consistency(changed, process_set=pair)
    hvd.remove_process_set(pair)


def _check_named() -> None:
    n, rank = hvd.size(), hvd.rank()
    last = n - 1
    arrays = {"weight": np.arange(1000.0), "bias": np.array(3, np.int8), "empty": np.empty(0), "flag": np.array([True])}
    hvd.check_consistency(arrays)
    hvd.check_consistency({})
    if n == 1:
        return
    others = "rank 0" if n == 2 else f"ranks {', '.join(map(str, range(last)))}"
    changed = {**arrays, "weight": arrays["weight"].copy(), "bias": np.array(3 + (rank == last), np.int8)}
    with pytest.raises(MismatchError, match=rf"'bias' \(int8 \[\] here\) .*on rank {last} than on {others}\."):
        hvd.check_consistency(changed)
    if rank == last:
        changed["weight"][999] = np.nextafter(999.0, 0)
    with pytest.raises(MismatchError, match=f"tensor 'weight' .* has other bits on rank {last} than on"):
        hvd.check_consistency(changed)
    shorter = {"weight": arrays["weight"][: 1000 - (rank == last)]}
    with pytest.raises(MismatchError, match=f"'weight' .* another name, dtype or shape, .* on rank {last} "):
        hvd.check_consistency(shorter)
    fewer = arrays if rank == last else {name: arrays[name] for name in ("weight", "bias")}
    with pytest.raises(MismatchError, match="'empty'" if rank == last else "number 2 .there is none here"):
        hvd.check_consistency(fewer)
    if n > 2:
        _check_in_a_set(changed, last)
    hvd.check_consistency(arrays)


@pytest.mark.parametrize("n_ranks", [1, 2, 4])
def test_arrays_that_differ_are_named(n_ranks: int) -> None:
    with Ranks(n_ranks) as ranks:
        ranks.run(_check_named)


def _check_without_a_joined_rank() -> None:
    if hvd.rank() != 1:
        hvd.check_consistency({"x": np.ones(3)})
        with pytest.raises(MismatchError, match=r"on rank 2 than on rank 0\."):
            hvd.check_consistency({"x": np.full(3, hvd.rank())})
    hvd.join()


def test_ranks_that_have_joined_are_not_compared(worlds: Any) -> None:
    worlds.of(3).run(_check_without_a_joined_rank)
