"""allreduce over real processes, against NumPy: every operation, type and length, aligned or not."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from expected import COUNTS, DTYPES, OPS, Array, accepts, assert_reduced, values
from ranks import Ranks, wait_until

import ciranda as hvd
from ciranda import _basics, _core, _ops
from ciranda.errors import InvalidArgumentError

pytestmark = pytest.mark.multiprocess


def _misaligned(array: Array) -> Array:
    """Return a copy that starts one element after a 64-byte boundary would."""
    room = np.empty(array.size + 1, array.dtype)
    room[1:] = array
    return room[1:]


def _all_inputs(count: int, dtype: str, op: str) -> list[Array]:
    return [values(rank, count, dtype, op) for rank in range(hvd.size())]


def _check_all(op: str) -> str:
    digest = hashlib.sha256()
    for dtype in DTYPES:
        if not accepts(op, dtype):
            continue
        for count in COUNTS:
            inputs = _all_inputs(count, dtype, op)
            mine = inputs[hvd.rank()]
            result = hvd.allreduce(mine, op=OPS[op])
            assert_reduced(result, inputs, op, (op, dtype, count))
            digest.update(result.tobytes())
            in_place = _misaligned(mine)
            assert hvd.allreduce_(in_place, op=OPS[op], name=f"{op}.{dtype}.{count}") is in_place
            assert in_place.tobytes() == result.tobytes(), (op, dtype, count, "alignment changes the bits")
            np.testing.assert_array_equal(mine, inputs[hvd.rank()], err_msg="the input was written to")
    return digest.hexdigest()


@pytest.mark.parametrize("op", list(OPS))
def test_every_type_and_length(world: Ranks, op: str) -> None:
    digests = world.run(_check_all, op)
    assert len(set(digests)) == 1, "ranks got different bits"


def _check_refusals() -> None:
    with pytest.raises(ValueError, match=r"no min of complex64\. .*complex64 can be combined by average, sum, product"):
        hvd.allreduce(np.zeros(3, np.complex64), op=hvd.Min)
    with pytest.raises(ValueError, match=r"logical_and takes bool; int32 can be combined by .*bitwise_and"):
        hvd.allreduce(np.zeros(3, np.int32), op=hvd.LogicalAnd)
    with pytest.raises(ValueError, match="bitwise_or of uint8 cannot be scaled"):
        hvd.allreduce(np.zeros(3, np.uint8), op=hvd.BitwiseOr, prescale_factor=2.0)
    assert hvd.allreduce(np.complex64(1 + 2j), op=hvd.Sum) == hvd.size() * (1 + 2j)


def test_what_makes_no_sense_is_refused_and_the_engine_goes_on(world: Ranks) -> None:
    world.run(_check_refusals)


def _check_default() -> None:
    result = hvd.allreduce(np.float32(hvd.rank()))
    assert result.shape == ()
    assert result == (hvd.size() - 1) / 2
    with pytest.warns(DeprecationWarning, match="average"):
        assert hvd.allreduce(np.float32(1), average=False) == hvd.size()
    with pytest.raises(ValueError, match="not both"):
        hvd.allreduce(np.float32(1), average=True, op=hvd.Sum)


def test_average_is_the_default(world: Ranks) -> None:
    world.run(_check_default)


def _check_factors() -> None:
    n = hvd.size()
    half = hvd.allreduce(np.full(9, 60000, np.float16), op=hvd.Sum, prescale_factor=1.0 / n)
    np.testing.assert_array_equal(half, np.full(9, 60000, np.float16), err_msg="prescale comes too late for float16")


def test_the_factor_of_inputs_comes_first(world: Ranks) -> None:
    world.run(_check_factors)


def _check_many_in_flight() -> None:
    n = hvd.size()
    order = np.random.default_rng(hvd.rank()).permutation(200)
    arrays = {int(i): np.full(i * 7 % 50, i + hvd.rank(), np.float64) for i in order}
    handles = {i: hvd.allreduce_async_(array, op=hvd.Sum, name=f"many.{i}") for i, array in arrays.items()}
    for i in sorted(handles):
        result = hvd.synchronize(handles[i])
        assert result is arrays[i]
        np.testing.assert_array_equal(result, np.full(i * 7 % 50, i * n + n * (n - 1) / 2))
        assert hvd.poll(handles[i])


def test_any_order_on_each_rank(world: Ranks) -> None:
    """Names, not the order of calls, say what belongs together."""
    for _ in range(3):
        world.run(_check_many_in_flight)


def _check_grouped() -> None:
    n = hvd.size()
    arrays = [values(hvd.rank(), 100 * i, dtype, "sum", seed=i) for i, dtype in enumerate(DTYPES[1:])]
    results = hvd.grouped_allreduce(arrays, op=hvd.Sum, name="group")
    for i, (dtype, result) in enumerate(zip(DTYPES[1:], results, strict=True)):
        assert_reduced(result, [values(rank, 100 * i, dtype, "sum", seed=i) for rank in range(n)], "sum", dtype)
    handle = hvd.grouped_allreduce_async_(arrays, op=hvd.Sum)
    assert all(a is b for a, b in zip(hvd.synchronize(handle), arrays, strict=True))
    for array, result in zip(arrays, results, strict=True):
        assert array.tobytes() == result.tobytes()


def test_grouped(world: Ranks) -> None:
    world.run(_check_grouped)


def _check_non_contiguous() -> None:
    n, rank = hvd.size(), hvd.rank()
    matrix = np.arange(24.0).reshape(4, 6) + rank
    expected = (np.arange(24.0).reshape(4, 6) * n + n * (n - 1) / 2)[:, ::2]
    np.testing.assert_array_equal(hvd.allreduce(matrix[:, ::2], op=hvd.Sum), expected)
    np.testing.assert_array_equal(hvd.allreduce(np.asfortranarray(matrix), op=hvd.Sum)[:, ::2], expected)
    untouched = matrix[:, 1::2].copy()
    hvd.allreduce_(matrix[:, ::2], op=hvd.Sum)
    np.testing.assert_array_equal(matrix[:, ::2], expected)
    np.testing.assert_array_equal(matrix[:, 1::2], untouched)
    big_endian = np.arange(3, dtype=">i4")
    hvd.allreduce_(big_endian, op=hvd.Sum)
    np.testing.assert_array_equal(big_endian, np.arange(3) * n)


def test_non_contiguous(world: Ranks) -> None:
    world.run(_check_non_contiguous)


def _check_dropped_handles() -> None:
    for i in range(50):
        hvd.allreduce_async(np.full(10_000, i, np.float32), name=f"dropped.{i}")
    hvd.barrier()
    assert hvd.allreduce(np.float32(1), op=hvd.Sum) == hvd.size()


def test_handles_may_be_dropped(world: Ranks) -> None:
    world.run(_check_dropped_handles)


def _check_given_up(folder: Path) -> None:
    array = np.ones(10, np.float32)
    for name in ("given up", "given up again"):
        if hvd.rank() == hvd.size() - 1:  # as where a signal's handler raises before a blocking call waits
            _basics.engine().submit(_ops.terms_of(_ops.ALLREDUCE), array, array, name, how=_core.AWAITED)
            others = [folder / f"{name}.{rank}" for rank in range(hvd.size() - 1)]
            wait_until(lambda others=others: all(each.exists() for each in others))  # type: ignore[misc]
        else:
            hvd.allreduce_(array, name=name, op=hvd.Sum)
            (folder / f"{name}.{hvd.rank()}").touch()
        hvd.barrier()


def test_a_blocking_call_that_is_given_up_keeps_nobody_waiting(world: Ranks, tmp_path: Path) -> None:
    world.run(_check_given_up, tmp_path)


def _check_tensors_twice(step: int) -> None:
    n, rank = hvd.size(), hvd.rank()
    total = sum(each + step for each in range(n))
    for count in (500, 1 << 20, 3 << 20):
        array, other = np.full(count, rank + step, np.float32), np.full(3, rank + step, np.float32)
        for name in ("twice", "twice", None, None):
            for result in hvd.grouped_allreduce([array, array, array[100:]], name=name, op=hvd.Sum):
                assert (result == total).all()
            with pytest.raises(InvalidArgumentError, match="tensor 1 of the group: it shares memory with tensor 0"):
                hvd.grouped_allreduce_([array[100:], array[:300]], name=name, op=hvd.Sum)
        for name in ("in place", "in place", None, None):
            array[:], other[:] = rank + step, rank + step
            hvd.grouped_allreduce_([array, other, array, array], name=name, op=hvd.Sum)
            assert (array == total).all()
            assert (other == total).all()


def test_a_group_may_hold_an_array_twice(world: Ranks) -> None:
    world.run(_check_tensors_twice, 1)


def _check_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(thread: int) -> None:
        for i in range(30):
            result = hvd.allreduce(np.full(i * 100, thread, np.int64), op=hvd.Sum, name=f"thread.{thread}.{i}")
            np.testing.assert_array_equal(result, np.full(i * 100, thread * hvd.size()))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_several_threads(world: Ranks) -> None:
    world.run(_check_threads)


def _check_large() -> None:
    count = 2**31 + 7
    array = np.zeros(count, np.uint8)
    for position in (0, 2**31 - 1, 2**31, count - 1):
        array[position] = hvd.rank() + 1
    hvd.allreduce_(array, op=hvd.Sum)
    total = sum(range(hvd.size() + 1))
    assert [int(array[position]) for position in (0, 1, 2**31 - 1, 2**31, count - 1)] == [total, 0, total, total, total]


@pytest.mark.large
def test_more_than_two_to_the_31_elements() -> None:
    psutil = pytest.importorskip("psutil")
    needed = 3 * 2**31
    if psutil.virtual_memory().available < needed:
        pytest.skip(f"needs {needed >> 30} GiB of free memory")
    with Ranks(2) as ranks:
        ranks.run(_check_large, timeout=200)


def _check_shared_memory() -> None:
    from ciranda._basics import engine

    n, rank = hvd.size(), hvd.rank()
    for dtype in ("float32", "float16", "int64", "complex128", "bool"):
        for shape in ((0,), (3,), (700, 1001)):
            array = hvd.empty(shape, dtype)
            assert (array.dtype, array.shape, array.any()) == (np.dtype(dtype), shape, False)
            array[...] = values(rank, array.size, dtype, "max").reshape(shape)
            expected = hvd.allreduce(array.copy(), op=hvd.Sum if dtype != "bool" else hvd.LogicalOr)
            before = engine().n_bytes_in_place
            hvd.allreduce_(array, op=hvd.Sum if dtype != "bool" else hvd.LogicalOr)
            assert array.tobytes() == expected.tobytes()
            assert engine().n_bytes_in_place - before == (array.nbytes if n > 1 and array.nbytes > 16384 else 0)


def test_shared_memory_is_reduced_where_it_lies(world: Ranks) -> None:
    world.run(_check_shared_memory)


def _use_many_names() -> bool:
    """Each for three calls, of which the last two may do without the log, beside one that stays; some asynchronous."""
    rank, size = hvd.rank(), hvd.size()
    for i in range(300):
        later = [hvd.allreduce_async(np.full(3, rank + i), op=hvd.Sum, name=f"later {i} {k}") for k in range(2)]
        for _ in range(3):
            values = hvd.allreduce(np.full(5, rank + i), op=hvd.Sum, name=f"name {i}")
            assert (values == size * i + size * (size - 1) // 2).all()
        assert (hvd.allreduce(np.full(7, float(i)), name="stays") == i).all()
        assert (hvd.allgather(np.full((rank + 1, 2), i), name=f"rows {i % 40}") == i).all()
        for operation in later:
            assert (hvd.synchronize(operation) == size * i + size * (size - 1) // 2).all()
    return True


@pytest.mark.parametrize("shared", ["0", "1"])
def test_names_that_are_used_no_more_make_room(shared: str) -> None:
    with Ranks(3, env={"CIRANDA_CACHE_CAPACITY": "20", "CIRANDA_SHARED_MEMORY": shared}) as ranks:
        assert ranks.run(_use_many_names) == [True] * 3
