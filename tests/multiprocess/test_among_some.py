"""What every collective gives among some of the ranks: those of a process set, or those that have not joined."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from expected import DTYPES, OPS, Array, accepts, assert_reduced, values
from ranks import Ranks

import ciranda as hvd
from conftest import Worlds

pytestmark = pytest.mark.multiprocess


class Some(NamedTuple):
    """Ranks that call, counted in the world, of the members of a process set."""

    ranks: list[int]
    members: list[int]
    process_set: hvd.ProcessSet

    def place(self) -> int:
        """This rank's among the members."""
        return self.members.index(hvd.rank())


def _check_reductions(some: Some) -> bytes:
    """Every op of every type, against NumPy; and all forms with the same bits."""
    rank, root, process_set = hvd.rank(), some.ranks[-1], some.process_set
    bits = b""
    for op, dtype in ((op, dtype) for op in OPS for dtype in DTYPES if accepts(op, dtype)):
        for count in (5, 20_001):
            inputs = [values(r, count, dtype, op) for r in some.ranks]
            mine = values(rank, count, dtype, op)
            whole = hvd.allreduce(mine, op=OPS[op], process_set=process_set)
            assert_reduced(whole, inputs, op, (op, dtype, count))
            pair = hvd.grouped_allreduce([mine, mine[:3]], op=OPS[op], process_set=process_set)
            assert [each.tobytes() for each in pair] == [whole.tobytes(), whole[:3].tobytes()]
            share = np.array_split(whole, len(some.members))[some.place()]
            assert hvd.reducescatter(mine, op=OPS[op], process_set=process_set).tobytes() == share.tobytes()
            on_root = hvd.reduce(mine, root, op=OPS[op], process_set=process_set)
            assert on_root is None if rank != root else on_root is not None and on_root.tobytes() == whole.tobytes()
            bits += whole.tobytes()
    return bits


def _adasum(inputs: list[Array]) -> Array:
    if len(inputs) == 1:
        return inputs[0]
    half = 1 << ((len(inputs) - 1).bit_length() - 1)
    a, b = _adasum(inputs[:half]), _adasum(inputs[half:])
    return np.asarray((1 - a @ b / (2 * (a @ a))) * a + (1 - a @ b / (2 * (b @ b))) * b)


def _check_weights_and_adasum(some: Some) -> bytes:
    bits = b""
    for dtype in ("float16", "float32", "float64"):
        for count in (5, 20_001):
            wide = np.stack([values(r, count, dtype, "sum") for r in some.ranks]).astype(np.float64)
            mine = values(hvd.rank(), count, dtype, "sum")
            mean = hvd.allreduce(mine, weight=hvd.rank() + 0.5, process_set=some.process_set)
            wanted = np.average(wide, axis=0, weights=[r + 0.5 for r in some.ranks])
            np.testing.assert_allclose(mean.astype(np.float64), wanted, rtol=0, atol=16 * np.finfo(dtype).eps)
            total = hvd.allreduce(mine, op=hvd.Adasum, process_set=some.process_set)
            wanted = _adasum(list(wide))
            np.testing.assert_allclose(total.astype(np.float64), wanted, rtol=0, atol=64 * np.finfo(dtype).eps)
            bits += mean.tobytes() + total.tobytes()
    return bits


def _check_rows(some: Some) -> None:
    """No rows come from a member that has joined, and those for it go nowhere."""
    n, place, process_set = len(some.members), some.place(), some.process_set

    def splits_of(sender: int) -> list[int]:
        splits = [0] * n
        splits[sender] += 1
        splits[-1] += n - 1
        return splits

    callers = [some.members.index(rank) for rank in some.ranks]
    for dtype in DTYPES:
        rows = [values(rank, 2 * n, dtype, "sum").reshape(n, 2) for rank in some.members]
        mine = rows[place]
        turned = hvd.alltoall(mine, process_set=process_set)
        np.testing.assert_array_equal(turned, np.stack([rows[sender][place] for sender in callers]))
        parts, received = hvd.alltoall(mine, splits_of(place), process_set=process_set)
        wanted = [np.split(rows[sender], np.cumsum(splits_of(sender))[:-1])[place] for sender in callers]
        np.testing.assert_array_equal(parts, np.concatenate(wanted))
        assert received.tolist() == [splits_of(sender)[place] * (sender in callers) for sender in range(n)]
        everything = np.concatenate([rows[sender][sender:] for sender in callers])
        np.testing.assert_array_equal(hvd.allgather(mine[place:], process_set=process_set), everything)
        for root in {some.ranks[0], some.ranks[-1]}:
            gathered = hvd.gather(mine[place:], root, process_set=process_set)
            assert (gathered is None) == (hvd.rank() != root)
            np.testing.assert_array_equal(everything if gathered is None else gathered, everything)
            theirs = rows[some.members.index(root)]
            np.testing.assert_array_equal(hvd.scatter(mine, root, process_set=process_set), theirs[place : place + 1])
            np.testing.assert_array_equal(hvd.broadcast(mine, root, process_set=process_set), theirs)
    hvd.barrier(process_set)


def _check_all(some: Some) -> bytes:
    _check_rows(some)
    return _check_reductions(some) + _check_weights_and_adasum(some)


def _without_the_last() -> bytes:
    last = hvd.size() - 1
    bits = b""
    if hvd.rank() != last:
        bits = _check_all(Some(list(range(last)), list(range(hvd.size())), hvd.global_process_set))
        for call in (hvd.broadcast, hvd.broadcast_, hvd.reduce, hvd.reduce_, hvd.gather, hvd.scatter):
            with pytest.raises(ValueError, match=rf"root, rank {last}, has joined"):
                call(np.ones(2 * hvd.size()), last, name=call.__name__)
    hvd.join()
    assert hvd.allreduce(np.ones(1), op=hvd.Sum)[0] == hvd.size()
    return bits


def _in_a_set(ranks: list[int]) -> bytes:
    process_set = hvd.add_process_set(ranks)
    bits = _check_all(Some(ranks, ranks, process_set)) if process_set.included() else b""
    hvd.remove_process_set(process_set)
    return bits


def _are_alike(bits: list[bytes]) -> bool:
    return len({each for each in bits if each}) == 1


@pytest.mark.parametrize("n_ranks", [2, 4])  # and three, on two hosts
def test_without_a_rank_that_has_joined(worlds: Worlds, n_ranks: int) -> None:
    assert _are_alike(worlds.of(n_ranks).run(_without_the_last))


@pytest.mark.parametrize("ranks", [[2], [0, 3], [1, 2, 3]], ids=str)
def test_in_a_process_set(worlds: Worlds, ranks: list[int]) -> None:
    assert _are_alike(worlds.of(4).run(_in_a_set, ranks))


def test_over_two_hosts() -> None:
    with Ranks(3, env_of=lambda rank: {"CIRANDA_HOST_ID": f"h{rank % 2}", "CIRANDA_HOST": f"h{rank % 2}"}) as world:
        assert _are_alike(world.run(_without_the_last))
        assert _are_alike(world.run(_in_a_set, [0, 1]))
