"""Process sets, joining, and messages between two ranks, over real processes."""

from __future__ import annotations

import itertools
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from expected import DTYPES, values
from ranks import Ranks, wait_until

import ciranda as hvd
from ciranda._basics import engine
from ciranda.errors import AbortedError, MismatchError
from conftest import Worlds

pytestmark = pytest.mark.multiprocess

_SETS = ([0], [0, 1], [1, 2], [0, 2], [1, 2, 3], [0, 3])


def _all_of(size: int) -> list[list[int]]:
    return [ranks for ranks in _SETS if max(ranks) < size and len(ranks) < size]


def _check_every_collective() -> None:
    me = hvd.rank()
    for ranks in _all_of(hvd.size()):
        process_set = hvd.add_process_set(ranks)
        assert process_set.size() == len(ranks)
        assert process_set.included() == (me in ranks)
        assert process_set.rank() == (ranks.index(me) if me in ranks else None)
        if me in ranks:
            values = np.arange(1000.0) + me
            summed = hvd.allreduce(values, op=hvd.Sum, process_set=process_set)
            np.testing.assert_array_equal(summed, len(ranks) * np.arange(1000.0) + sum(ranks))
            averaged = hvd.allreduce_(values.copy(), process_set=process_set)
            np.testing.assert_allclose(averaged, np.arange(1000.0) + np.mean(ranks))
            pair = hvd.grouped_allreduce([values, np.int64(me)], op=hvd.Max, process_set=process_set)
            assert pair[1] == max(ranks)
            gathered = hvd.allgather(np.full((me + 1, 2), me), process_set=process_set)
            np.testing.assert_array_equal(gathered[:, 0], np.repeat(ranks, [rank + 1 for rank in ranks]))
            assert hvd.broadcast(np.array(me), ranks[-1], process_set=process_set) == ranks[-1]
            assert hvd.broadcast_object({"from": me}, ranks[0], process_set=process_set) == {"from": ranks[0]}
            assert hvd.allgather_object(me, process_set=process_set) == ranks
            hvd.barrier(process_set=process_set)
            outside = next(rank for rank in range(hvd.size()) if rank not in ranks)
            with pytest.raises(ValueError, match=f"root_rank {outside} is not "):
                hvd.broadcast(np.array(me), outside, process_set=process_set)
        else:
            with pytest.raises(ValueError, match=f"rank {me} is not in process set"):
                hvd.allreduce(np.zeros(3), process_set=process_set)
        assert hvd.remove_process_set(process_set)
        assert process_set.process_set_id is None
        assert not hvd.remove_process_set(process_set)
        with pytest.raises(ValueError, match="has not been added"):
            hvd.allreduce(np.zeros(3), process_set=process_set)


def _maps_of_sets() -> int:
    maps = Path("/proc/self/maps").read_text(encoding="ascii", errors="replace")
    return sum("/dev/shm/" in line for line in maps.splitlines())


def _check_memory_of_sets() -> None:
    before = _maps_of_sets()
    pair = hvd.add_process_set([0, 1])
    assert _maps_of_sets() == before, "a set that has done nothing has no memory"
    for _ in range(2):
        if pair.included():
            assert hvd.allreduce(np.float32(1), op=hvd.Sum, process_set=pair) == 2
            assert _maps_of_sets() == before + 1
    hvd.remove_process_set(pair)
    assert wait_until(lambda: _maps_of_sets() == before)  # the set's own last word may still be on its way


def test_a_set_whose_ranks_share_memory_has_some_of_its_own_until_it_is_removed(worlds: Worlds) -> None:
    worlds.of(3).run(_check_memory_of_sets)


def test_every_collective_on_any_set(world: Ranks) -> None:
    world.run(_check_every_collective)


def _call_all_again(place: hvd.ProcessSet, step: int, prefix: str | None) -> None:
    """Blocking calls of one tensor: in place, from one root, into memory that is given, and into new memory."""
    mine = np.full(place.size(), float(hvd.rank() + step))
    total = sum(place.ranks) + place.size() * step

    def name(of: str) -> str | None:
        return None if prefix is None else prefix + of

    summed = hvd.allreduce_(mine.copy(), name=name("sum"), op=hvd.Sum, process_set=place)
    assert summed.tolist() == [total] * place.size()
    assert hvd.broadcast_(mine.copy(), 2, name("last"), place).tolist() == [2 + step] * place.size()
    cut = np.empty(1)
    hvd.reducescatter(mine, name=name("cut"), op=hvd.Sum, process_set=place, output=cut)
    assert cut.item() == total
    gathered = hvd.allgather(mine[:1], name("rows"), place)
    assert gathered.tolist() == [rank + step for rank in place.ranks]


def _collectives_made_again() -> list[set[str]]:
    """Which were carried out without a request, in each place."""
    among_two = hvd.add_process_set([0, 2])
    found = []
    for place in (among_two, among_two.lane(1), hvd.global_process_set.lane(1)):
        recording = engine().record()
        for step in range(200 if place.included() else 0):
            _call_all_again(place, step, "again." if step % 2 else None)
        found.append({collective for _, collective, path, *_ in recording.read() if path in {"direct", "repeated"}})
    hvd.remove_process_set(among_two)
    return found


def test_calls_that_are_made_again_in_any_lane(worlds: Worlds) -> None:
    every = {"allreduce", "broadcast", "reducescatter", "allgather"}
    in_set, outside = [every] * 3, [set(), set(), every]
    assert worlds.of(3).run(_collectives_made_again) == [in_set, outside, in_set]


def _check_refusals() -> None:
    process_set = hvd.add_process_set([0])
    with pytest.raises(ValueError, match=r"ranks \[0\] exists already"):
        hvd.add_process_set([0])
    with pytest.raises(ValueError, match="has been added already"):
        hvd.add_process_set(process_set)
    with pytest.raises(ValueError, match=f"rank {hvd.size()} of .* does not exist"):
        hvd.add_process_set([0, hvd.size()])
    with pytest.raises(ValueError, match="is twice in"):
        hvd.add_process_set([0, 0])
    with pytest.raises(ValueError, match="at least one rank"):
        hvd.add_process_set([])
    with pytest.raises(ValueError, match="global process set cannot be removed"):
        hvd.remove_process_set(hvd.global_process_set)
    assert hvd.global_process_set.ranks == list(range(hvd.size()))
    assert list(hvd.get_process_set_ids_and_ranks().values()) == [list(range(hvd.size())), [0]]
    hvd.remove_process_set(process_set)


def test_refusals() -> None:
    with Ranks(3) as ranks:
        ranks.run(_check_refusals)


def _check_any_order(seed: int) -> None:
    sets = [hvd.add_process_set(ranks) for ranks in ([0, 1], [1, 2], [0, 2])]
    order = random.Random(seed + hvd.rank())
    for _ in range(30):
        mine = [process_set for process_set in sets if process_set.included()]
        order.shuffle(mine)
        handles = [hvd.allreduce_async(np.full(5000, 1.0), op=hvd.Sum, name="x", process_set=each) for each in mine]
        threads = [threading.Thread(target=hvd.barrier, args=(each,)) for each in mine]
        for thread in threads:
            thread.start()
        for handle in handles:
            assert hvd.synchronize(handle)[-1] == 2
        for thread in threads:
            thread.join()
    for process_set in sets:
        hvd.remove_process_set(process_set)


def test_overlapping_sets_in_any_order_and_from_threads() -> None:
    with Ranks(3) as ranks:
        ranks.run(_check_any_order, 1)


def _come_and_go_in_threads() -> None:
    """Every set of some ranks is made, used and removed many times, by four threads that each go at their own pace."""
    n, me = hvd.size(), hvd.rank()
    sets = [list(ranks) for count in range(1, n) for ranks in itertools.combinations(range(n), count)]

    def work(thread: int) -> None:
        for _ in range(10):
            for ranks in sets[thread::4]:
                process_set = hvd.add_process_set(ranks)
                if process_set.included():
                    total = hvd.allreduce(np.full(1000, me + 1), op=hvd.Sum, name="x", process_set=process_set)
                    assert total.tolist() == [sum(rank + 1 for rank in ranks)] * 1000
                assert hvd.remove_process_set(process_set)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_sets_come_and_go_in_several_threads(worlds: Worlds) -> None:
    worlds.of(4).run(_come_and_go_in_threads)


def _check_pending_at_removal() -> str:
    process_set = hvd.add_process_set([0, 1])
    handle = hvd.allreduce_async(np.zeros(3), name="alone", process_set=process_set) if hvd.rank() == 0 else None
    hvd.remove_process_set(process_set)
    if handle is None:
        return ""
    with pytest.raises(AbortedError) as error:
        hvd.synchronize(handle)
    return str(error.value)


def test_removal_fails_what_is_pending() -> None:
    with Ranks(3) as ranks:
        assert "was removed before this was done" in ranks.run(_check_pending_at_removal)[0]


def _check_static() -> None:
    hvd.shutdown()
    evens, rest = hvd.ProcessSet([0, 2]), hvd.ProcessSet([1])
    for _ in range(3):
        hvd.init(process_sets=[evens, rest])
        assert (evens.process_set_id, rest.process_set_id) == (1, 2)
        mine = rest if hvd.rank() == 1 else evens
        assert hvd.allreduce(np.ones(1), op=hvd.Sum, process_set=mine)[0] == mine.size()
        hvd.shutdown()
        assert (evens.process_set_id, evens.size(), evens.included()) == (None, None, None)
    hvd.init(process_sets="dynamic")


def test_sets_at_init_and_init_again() -> None:
    with Ranks(3) as ranks:
        ranks.run(_check_static)


# --- joining


def _check_join() -> None:
    n, me = hvd.size(), hvd.rank()
    for epoch in range(3):
        n_batches = 2 + (me + epoch) % n
        for batch in range(n_batches):
            working = [rank for rank in range(n) if batch < 2 + (rank + epoch) % n]
            mean = hvd.allreduce(np.full(10_000, float(me)), name="gradient")
            np.testing.assert_allclose(mean, np.mean(working), rtol=1e-15)
            assert hvd.allreduce(np.array([me]), op=hvd.Min, name="least")[0] == min(working)
            np.testing.assert_array_equal(hvd.allgather(np.array([me]), name="who"), working)
        assert hvd.join() == (2 * n - 1 - epoch) % n
    assert hvd.allreduce(np.ones(1), op=hvd.Sum)[0] == n


def test_ranks_with_fewer_batches_join(world: Ranks) -> None:
    world.run(_check_join)


def _check_divisor() -> None:
    n, me = hvd.size(), hvd.rank()
    x = np.full(6, 6.0)
    with pytest.raises(ValueError, match='divisor must be "contributors" or "world", not \'all\''):
        hvd.allreduce(x, divisor="all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r'divisor="world" is one of op=Average without weights, here it is weighted'):
        hvd.allreduce(x, weight=1.0, divisor="world")
    if n > 1:
        with pytest.raises(MismatchError, match=r"divisor (world|contributors) on rank 0 but (world|contributors) on"):
            hvd.allreduce(x, divisor="world" if me == 0 else "contributors", name="one")
    if me < max(n - 1, 1):
        share = 6.0 * max(n - 1, 1) / n
        np.testing.assert_allclose(hvd.allreduce(x, divisor="world"), share)
        np.testing.assert_allclose(hvd.allreduce(x), 6.0)
        np.testing.assert_allclose(hvd.allreduce_(x.copy(), divisor="world", postscale_factor=2.0), 2 * share)
        for result in hvd.grouped_allreduce([x, x.astype(np.float32)], divisor="world"):
            np.testing.assert_allclose(result, share, rtol=1e-6)
        np.testing.assert_allclose(hvd.reducescatter(x, divisor="world"), share)
        on_root = hvd.reduce(x, root_rank=0, divisor="world")
        assert on_root is None if me else np.allclose(on_root, share)
        assert hvd.allreduce(np.array([7]), divisor="world")[0] == 7 * max(n - 1, 1) // n
    hvd.join()


def test_averages_over_the_world_count_the_joined_as_zeros(world: Ranks) -> None:
    world.run(_check_divisor)


def _check_unnamed_after_join() -> None:
    for _ in range(hvd.rank() + 1):  # without names, and of different numbers
        hvd.allreduce(np.ones(2))
    hvd.join()
    assert hvd.allreduce(np.ones(2), op=hvd.Sum)[0] == hvd.size()


def test_calls_without_names_belong_together_again_after_join(world: Ranks) -> None:
    world.run(_check_unnamed_after_join)


# --- two ranks


def _check_messages() -> None:
    me, n = hvd.rank(), hvd.size()
    for array in (np.arange(5.0), np.array(3, np.int8), np.zeros((0, 4)), np.ones((300, 1000), np.float32)[:, ::2]):
        to, source = (me + 1) % n, (me - 1) % n
        sent = hvd.send_async(array + me, to)
        received = hvd.recv(np.empty_like(array + me), source)
        np.testing.assert_array_equal(received, array + source)
        hvd.synchronize(sent)
    mine = [values(me, count, dtype, "sum") for dtype in DTYPES for count in (0, 1, 1001)]
    together = hvd.grouped_send_async(mine, to)
    room = [np.empty_like(array) for array in mine]
    received_all = hvd.grouped_recv(room, source)
    assert all(a is b for a, b in zip(received_all, room, strict=True))
    for array, (dtype, count) in zip(room, ((dtype, count) for dtype in DTYPES for count in (0, 1, 1001)), strict=True):
        np.testing.assert_array_equal(array, values(source, count, dtype, "sum"))
    hvd.synchronize(together)
    if me < 2:
        handles = [hvd.send_async(np.array([10.0 * me + i]), 1 - me, name=str(i)) for i in range(3)]
        for i in (2, 0, 1):
            assert hvd.recv(np.empty(1), 1 - me, name=str(i))[0] == 10 * (1 - me) + i
        for handle in handles:
            hvd.synchronize(handle)
        wrong: hvd.Handle[Any] = hvd.send_async(np.zeros(3), 1) if me == 0 else hvd.recv_async(np.zeros(4), 0)
        with pytest.raises(MismatchError, match=r"shape \[3\] on rank 0 but \[4\] on rank 1"):
            hvd.synchronize(wrong)
    for nobody in (me, n, -1):
        with pytest.raises(ValueError, match="it is no other rank"):
            hvd.send(np.zeros(3), nobody)


@pytest.mark.parametrize("n_ranks", [2, 3, 4])
def test_messages_between_two_ranks(n_ranks: int) -> None:
    with Ranks(n_ranks) as ranks:
        ranks.run(_check_messages)


def test_messages_without_shared_memory() -> None:
    with Ranks(2, env={"CIRANDA_SHARED_MEMORY": "0"}) as ranks:
        ranks.run(_check_messages)
        ranks.run(_check_every_collective)


def _check_lanes() -> None:
    me = hvd.rank()
    some = hvd.add_process_set([0, 2])
    for process_set in (hvd.global_process_set, some):
        if not process_set.included():
            continue
        # Calls without a name: in one lane, this order would match tensors of different shapes.
        shapes = [(0, 3), (1, 5)] if me == 0 else [(1, 5), (0, 3)]
        handles = {
            lane: hvd.allreduce_async(np.full(count, lane + 1), op=hvd.Sum, process_set=process_set.lane(lane))
            for lane, count in shapes
        }
        size = process_set.lane(1).size()
        assert size == process_set.size()
        for lane, count in shapes:
            np.testing.assert_array_equal(hvd.synchronize(handles[lane]), np.full(count, size * (lane + 1)))
        total = hvd.allreduce(np.ones(1), op=hvd.Sum, process_set=process_set.lane(63))  # made when it is first used
        assert total.tolist() == [size]
        with pytest.raises(
            ValueError, match=r"lane 64 does not exist: lanes of process set \d are counted from 0 to 63"
        ):
            hvd.allreduce(np.ones(1), process_set=process_set.lane(64))
    with pytest.raises(ValueError, match="lane -1 does not exist"):
        some.lane(-1)
    hvd.remove_process_set(some)
    with pytest.raises(ValueError, match="has not been added"):
        some.lane(1)


def test_lanes_do_not_wait_for_each_other() -> None:
    with Ranks(3, {"CIRANDA_NUM_LANES": "2"}) as ranks:
        ranks.run(_check_lanes)


def _init_with_lanes() -> None:
    """The argument stands above the setting; sets that are given to init() have lanes too."""
    pair = hvd.ProcessSet([0, 2])
    hvd.init(process_sets=[pair], num_lanes=2)
    assert pair.process_set_id is not None
    if pair.included():
        assert hvd.allreduce(np.ones(2), op=hvd.Sum, process_set=pair.lane(1)).tolist() == [2, 2]
    hvd.init()
    hvd.init(num_lanes=2)
    with pytest.raises(ValueError, match=r"init\(num_lanes=3\): this process is in a world already, which has 2"):
        hvd.init(num_lanes=3)
    hvd.remove_process_set(pair)
    _check_lanes()
    hvd.shutdown()
    hvd.init()  # by the setting again
    assert hvd.allreduce(np.ones(1), op=hvd.Sum, process_set=hvd.global_process_set.lane(1)).tolist() == [3]


def test_the_number_of_lanes_can_be_given_to_init() -> None:
    with Ranks(3, {"CIRANDA_NUM_LANES": "1"}, initialize=False) as ranks:
        ranks.run(_init_with_lanes)


def _init_with_other_lanes() -> str:
    for bad in (0, 65, -1):
        with pytest.raises(ValueError, match=f"num_lanes must be between 1 and 64, not {bad}"):
            hvd.init(num_lanes=bad)
    rank = int(os.environ["CIRANDA_RANK"])
    with pytest.raises(hvd.errors.MismatchError) as raised:
        hvd.init(num_lanes=3 if rank == 1 else None)
    assert not hvd.is_initialized()
    return str(raised.value)


def test_ranks_that_give_other_numbers_of_lanes_are_told() -> None:
    with Ranks(2, {"CIRANDA_NUM_LANES": "2"}, initialize=False) as ranks:
        texts = ranks.run(_init_with_other_lanes)
    assert "CIRANDA_NUM_LANES, or num_lanes of init(), is 2 here but 3 on rank 1" in texts[0]
    assert "is 3 here but 2 on rank 0" in texts[1]
