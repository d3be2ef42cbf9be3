"""allgather, broadcast, barrier and Python objects over real processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from expected import DTYPES, Array, values
from ranks import Ranks

import ciranda as hvd
from ciranda.errors import InvalidArgumentError

pytestmark = pytest.mark.multiprocess


def _part(rank: int, rows: int, dtype: str) -> Array:
    return values(rank, rows * 6, dtype, "sum").reshape(rows, 2, 3)


def _check_allgather() -> None:
    n = hvd.size()
    for dtype in DTYPES:
        for rows_of in (lambda r: 4, lambda r: r, lambda r: 5 * (r == n - 1), lambda r: 0, lambda r: 2000 + r):
            rows = [rows_of(rank) for rank in range(n)]
            gathered = hvd.allgather(_part(hvd.rank(), rows[hvd.rank()], dtype))
            expected = np.concatenate([_part(rank, rows[rank], dtype) for rank in range(n)])
            assert gathered.dtype == expected.dtype
            assert gathered.flags.writeable
            np.testing.assert_array_equal(gathered, expected, err_msg=f"{dtype} {rows}")


def test_allgather_of_uneven_parts(world: Ranks) -> None:
    world.run(_check_allgather)


def _check_given_outputs() -> None:
    from ciranda._basics import engine
    from ciranda._ops import ALLGATHER, REDUCESCATTER, terms_of

    n, rank = hvd.size(), hvd.rank()
    for dtype in DTYPES:
        for rows in (1, 2000):
            whole = np.concatenate([_part(r, rows, dtype) for r in range(n)])
            into = np.zeros_like(whole)
            (result,) = engine().run(terms_of(ALLGATHER), _part(rank, rows, dtype), into, None)
            np.testing.assert_array_equal(into, whole)
            assert result.ctypes.data == into.ctypes.data
            if dtype != "bool":
                into = np.zeros_like(_part(rank, rows, dtype))
                expected = hvd.reducescatter(whole, op=hvd.Sum)
                assert engine().run(terms_of(REDUCESCATTER), whole, into, None) == []
                np.testing.assert_array_equal(into, expected)
    # Ranks that differ: the engine allocates, and leaves the memory alone.
    mine, into = np.full(rank + 1, rank), np.zeros((rank + 1) * n, dtype=np.int64)
    (result,) = engine().run(terms_of(ALLGATHER), mine, into, None)
    np.testing.assert_array_equal(result, np.concatenate([np.full(r + 1, r) for r in range(n)]))
    assert n == 1 or not into.any()
    if n > 1:
        with pytest.raises(InvalidArgumentError, match="but the result is"):
            engine().run(terms_of(ALLGATHER), mine, mine, None)
    with pytest.raises(InvalidArgumentError, match=r"but the (input|result) is"):
        engine().run(terms_of(ALLGATHER), mine, mine.copy().repeat(n + 1), None)


def test_given_outputs(world: Ranks) -> None:
    world.run(_check_given_outputs)


def _check_grouped_allgather() -> None:
    n, rank = hvd.size(), hvd.rank()
    for _ in range(2):
        results = hvd.grouped_allgather([_part(rank, rank + i, DTYPES[i]) for i in range(4)], name="gather group")
        for i, result in enumerate(results):
            expected = np.concatenate([_part(r, r + i, DTYPES[i]) for r in range(n)])
            np.testing.assert_array_equal(result, expected)
    handle = hvd.allgather_async(np.arange(3)[:, None][:, 0])
    np.testing.assert_array_equal(hvd.synchronize(handle), np.tile(np.arange(3), n))


def test_grouped_and_asynchronous_allgather(world: Ranks) -> None:
    world.run(_check_grouped_allgather)


def _check_broadcast() -> None:
    for root in range(hvd.size()):
        for dtype in DTYPES:
            for count in (0, 1, 7, 100_003):
                mine = values(hvd.rank(), count, dtype, "sum")
                theirs = values(root, count, dtype, "sum")
                np.testing.assert_array_equal(hvd.broadcast(mine, root), theirs)
                np.testing.assert_array_equal(mine, values(hvd.rank(), count, dtype, "sum"))
                name = f"broadcast.{root}.{dtype}.{count}"
                assert hvd.broadcast_(mine, root_rank=root, name=name) is mine
                np.testing.assert_array_equal(mine, theirs)
    matrix = np.full((3, 4), hvd.rank())
    hvd.broadcast_(matrix[:, 1], hvd.size() - 1)
    np.testing.assert_array_equal(matrix[:, 1], hvd.size() - 1)
    np.testing.assert_array_equal(matrix[:, 0], hvd.rank())


def test_broadcast_from_every_root(world: Ranks) -> None:
    world.run(_check_broadcast)


def _grouped_broadcast() -> None:
    rank, root = hvd.rank(), hvd.size() - 1
    arrays = [np.full((3, 2), rank, np.float32), np.full(5, rank, np.int64), np.empty((0,)), np.array(rank, np.uint8)]
    everywhere = [np.full_like(array, root) for array in arrays]
    results = hvd.grouped_broadcast(arrays, root, name="group")
    for result, expected in zip(results, everywhere, strict=True):
        np.testing.assert_array_equal(result, expected)
        assert result.dtype == expected.dtype
    assert arrays[1].tolist() == [rank] * 5
    columns = np.full((4, 2), rank, np.float16)[:, ::2]  # not contiguous
    handle = hvd.grouped_broadcast_async_([arrays[0], columns], root)
    first, second = hvd.synchronize(handle)
    assert first is arrays[0]
    assert second is columns
    assert np.all(first == root)
    assert np.all(columns == root)
    with pytest.raises(InvalidArgumentError, match=f"root_rank {hvd.size()} is not a rank"):
        hvd.grouped_broadcast_(arrays, hvd.size())


def test_grouped_broadcast(world: Ranks) -> None:
    world.run(_grouped_broadcast)


def _handles_without_tensors() -> int:
    waits = hvd.barrier_async()
    total = hvd.allreduce(np.ones(3), op=hvd.Sum, name="meanwhile")
    assert total.tolist() == [hvd.size()] * 3
    assert hvd.synchronize(waits) is None
    joined = hvd.join_async()
    last = hvd.synchronize(joined)
    assert hvd.poll(joined)
    return last


def test_barriers_and_joins_by_handle(world: Ranks) -> None:
    (last,) = set(world.run(_handles_without_tensors))
    assert last in range(world.n_ranks)


def _check_objects() -> None:
    rank, n = hvd.rank(), hvd.size()
    assert hvd.broadcast_object({"from": rank, "data": "é" * 1000 * rank}, n - 1)["from"] == n - 1
    assert hvd.allgather_object([rank] * rank) == [[r] * r for r in range(n)]
    double = hvd.broadcast_object((lambda x: 2 * x) if rank == 0 else None, name="function")
    assert double(21) == 42


def _check_an_object_that_cannot_be_sent() -> None:
    """All ranks learn of it at once, and go on."""
    rank = hvd.rank()
    for collect in (lambda obj: hvd.broadcast_object(obj, name="lock"), hvd.allgather_object):
        with pytest.raises(TypeError if rank == 0 else InvalidArgumentError, match=r"cannot pickle.*lock"):
            collect(threading.Lock() if rank == 0 else rank)
    with pytest.raises(TypeError if rank == 0 else InvalidArgumentError, match="" if rank == 0 else "'lock': rank 0 "):
        hvd.broadcast_object(threading.Lock(), name="lock")
    assert hvd.broadcast_object(rank, name="lock") == 0


def test_objects(world: Ranks) -> None:
    world.run(_check_objects)
    world.run(_check_an_object_that_cannot_be_sent)


def _timed_barrier() -> tuple[float, float]:
    before = time.monotonic()
    hvd.barrier()
    return before, time.monotonic()


def test_nobody_leaves_a_barrier_before_all_have_come(world: Ranks) -> None:
    for _ in range(5):
        times = world.run(_timed_barrier)
        assert max(before for before, _ in times) <= min(after for _, after in times)


def _check_broadcasts_from_all() -> None:
    for turn in range(2):
        for root in range(hvd.size()):
            for count in (1, 1_000, 100_003):
                wide = [values(rank, count, "float32", "sum", turn) for rank in range(hvd.size())]
                got = hvd.broadcast(wide[hvd.rank()], root, name=f"{count} from {root}")
                np.testing.assert_array_equal(got, wide[root])
                in_place = wide[hvd.rank()].copy()
                hvd.broadcast_(in_place, root, name=f"{count} from {root}, in place")
                np.testing.assert_array_equal(in_place, wide[root])


def _apart(rank: int) -> dict[str, str]:
    return {"CIRANDA_HOST": f"host{rank}", "CIRANDA_HOST_ID": f"host{rank}"}


def _unlike(rank: int) -> dict[str, str]:
    """Hosts of one, two and more ranks, those of the first apart from each other."""
    name = f"host{(0, 1, 1, 2, 0, 2, 2)[rank]}"
    return {"CIRANDA_HOST": name, "CIRANDA_HOST_ID": name}


@pytest.mark.parametrize("algorithm", ["", "tree", "chain"])
@pytest.mark.parametrize(("n_ranks", "env_of"), [(2, _apart), (3, _apart), (7, _apart), (7, _unlike)])
def test_broadcast_between_hosts(n_ranks: int, env_of: Callable[[int], dict[str, str]], algorithm: str) -> None:
    with Ranks(n_ranks, env={"CIRANDA_ALGORITHM": algorithm}, env_of=env_of) as ranks:
        ranks.run(_check_broadcasts_from_all)
