"""reducescatter, alltoall, reduce, gather and scatter over real processes, against NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import rows_between_hosts
from expected import DTYPES, OPS, Array, accepts, assert_reduced, values
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ranks import Ranks

import ciranda as hvd
from ciranda import _basics
from ciranda.errors import InvalidArgumentError, MismatchError

pytestmark = pytest.mark.multiprocess

# Worlds are shared by the examples on purpose: what one leaves behind must not change the next.
_EXAMPLES = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _my_rows(n_rows: int) -> slice:
    """Return the rows that belong to this rank when they are shared out evenly, the rest in front."""
    n, rank = hvd.size(), hvd.rank()
    begin = rank * (n_rows // n) + min(rank, n_rows % n)
    return slice(begin, begin + n_rows // n + (rank < n_rows % n))


def _block(rank: int, shape: tuple[int, ...], dtype: str, op: str = "sum") -> Array:
    return values(rank, int(np.prod(shape)), dtype, op).reshape(shape)


# --- reductions


def _check_reductions(op: str) -> None:
    n, rank = hvd.size(), hvd.rank()
    for dtype in DTYPES:
        if not accepts(op, dtype):
            continue
        for shape in ((0, 3), (1,), (n + 1, 2), (5 * n - 1, 7), (n, 0), (2 * n + 1, 40_001)):
            inputs = [_block(r, shape, dtype, op) for r in range(n)]
            case = f"{op} {dtype} {shape}"
            whole = hvd.allreduce(inputs[rank], op=OPS[op])
            assert_reduced(whole, inputs, op, case)
            part = hvd.reducescatter(inputs[rank], op=OPS[op])
            assert part.dtype == whole.dtype
            assert part.shape == whole[_my_rows(shape[0])].shape, case
            assert part.tobytes() == whole[_my_rows(shape[0])].tobytes(), f"{case}: not the bits of allreduce"
            for root in {0, n - 1}:
                result = hvd.reduce(inputs[rank], root, op=OPS[op])
                assert (result is None) == (rank != root)
                assert result is None or result.tobytes() == whole.tobytes(), case
            mine = inputs[rank].copy()
            assert hvd.reduce_(mine, 0, op=OPS[op], name=f"reduce_{case}") is mine
            assert mine.tobytes() == (whole if rank == 0 else inputs[rank]).tobytes()


@pytest.mark.parametrize("op", list(OPS))
def test_reductions_have_the_bits_of_allreduce(world: Ranks, op: str) -> None:
    world.run(_check_reductions, op)


def _check_defaults_and_factors() -> None:
    n = hvd.size()
    ones = np.ones((n, 3), np.float32)
    np.testing.assert_array_equal(hvd.reducescatter(ones * (hvd.rank() + 1)), np.full((1, 3), (n + 1) / 2))
    np.testing.assert_array_equal(
        hvd.reducescatter(ones, op=hvd.Sum, prescale_factor=0.5, postscale_factor=6.0), np.full((1, 3), 3.0 * n)
    )
    total = hvd.reduce(ones, 0, op=hvd.Sum, prescale_factor=0.5, postscale_factor=6.0)
    assert hvd.rank() != 0 or np.all(total == 3.0 * n)
    matrix = np.arange(6.0 * n).reshape(2 * n, 3)[:, ::2]  # not contiguous
    np.testing.assert_array_equal(hvd.reducescatter(matrix), matrix[_my_rows(2 * n)])
    hvd.reduce_(matrix, 0, op=hvd.Sum)
    assert hvd.rank() != 0 or np.all(matrix == np.arange(6.0 * n).reshape(2 * n, 3)[:, ::2] * n)


def test_defaults_and_factors(world: Ranks) -> None:
    world.run(_check_defaults_and_factors)


# --- what is only moved

Table = list[list[int]]  # how many rows each rank has for each


def _alltoall(table: Table, dtype: str, width: int) -> None:
    n, rank = hvd.size(), hvd.rank()

    def rows(sender: int, receiver: int) -> Array:
        return values(sender * n + receiver, table[sender][receiver] * width, dtype, "sum").reshape(-1, width)

    mine = np.concatenate([rows(rank, to) for to in range(n)])
    result, received = hvd.alltoall(mine, splits=np.array(table[rank], np.int32), name=f"alltoall.{dtype}.{width}")
    np.testing.assert_array_equal(result, np.concatenate([rows(sender, rank) for sender in range(n)]))
    assert result.dtype == np.dtype(dtype)
    assert received.dtype == np.int32
    assert received.tolist() == [table[sender][rank] for sender in range(n)]


@st.composite
def _tables(draw: st.DrawFn, n: int) -> Table:
    rows = st.one_of(st.just(0), st.integers(0, 5), st.integers(0, 3000))
    return draw(st.lists(st.lists(rows, min_size=n, max_size=n), min_size=n, max_size=n))


@pytest.mark.parametrize("n_ranks", [2, 3, 4])
def test_alltoall_of_any_splits(worlds: Any, n_ranks: int) -> None:
    """Splits change with every call under the same name, and need not be agreed on."""

    @_EXAMPLES
    @given(table=_tables(n_ranks), dtype=st.sampled_from(DTYPES), width=st.sampled_from([1, 3]))
    def check(table: Table, dtype: str, width: int) -> None:
        worlds.of(n_ranks).run(_alltoall, table, dtype, width)

    check()


def _even_alltoall() -> None:
    n, rank = hvd.size(), hvd.rank()
    for dtype in DTYPES:
        mine = np.repeat(np.arange(n) == rank, 2 * 3).reshape(2 * n, 3).astype(dtype)
        result = hvd.alltoall(mine, name="even")
        np.testing.assert_array_equal(result, np.repeat(np.arange(n) == rank, 6).reshape(2 * n, 3) * (rank == rank))
    tagged = np.array([100 * rank + to for to in range(n)], np.int64)
    handle = hvd.alltoall_async(tagged)
    np.testing.assert_array_equal(hvd.synchronize(handle), [100 * sender + rank for sender in range(n)])
    result, received = hvd.alltoall(tagged, splits=[1] * n)
    assert received.dtype == np.int64
    assert result.tolist() == [100 * sender + rank for sender in range(n)]
    pairs = hvd.grouped_alltoall([tagged, tagged.astype(np.float16)], [None, [1] * n], name="pair")
    for (result, received), dtype in zip(pairs, ("int64", "float16"), strict=True):
        np.testing.assert_array_equal(result, np.array([100 * sender + rank for sender in range(n)], dtype))
        assert result.dtype == np.dtype(dtype)
        assert received.tolist() == [1] * n


def test_even_and_grouped_alltoall(world: Ranks) -> None:
    world.run(_even_alltoall)


def _alltoall_in_place(n_rows: int) -> None:
    n, rank = hvd.size(), hvd.rank()
    for dtype in DTYPES:
        inputs = [_block(r, (n_rows * n, 3), dtype) for r in range(n)]
        expected = np.concatenate([each[rank * n_rows :][:n_rows] for each in inputs])
        mine = inputs[rank].copy()
        assert hvd.alltoall_(mine, name="in place") is mine
        assert mine.tobytes() == expected.tobytes(), dtype
        strided = np.repeat(inputs[rank], 2, axis=1)[:, ::2]
        tensors = [inputs[rank].copy(), strided, inputs[rank].copy()]
        results = hvd.synchronize(hvd.grouped_alltoall_async_(tensors, name="three"))
        for result, tensor in zip(results, tensors, strict=True):
            assert result is tensor
            assert result.tobytes() == expected.tobytes(), dtype


@pytest.mark.parametrize("n_rows", [0, 1, 5, 40_001])
def test_alltoall_in_place(world: Ranks, n_rows: int) -> None:
    world.run(_alltoall_in_place, n_rows)


def _alltoall_in_place_of_other_rows() -> str:
    n, rank = hvd.size(), hvd.rank()
    mine = np.full((n * (2 if rank == 1 else 1), 2), rank, np.float32)
    with pytest.raises(MismatchError) as caught:
        hvd.alltoall_(mine, name="bad")
    assert (mine == rank).all(), "something was moved"
    with pytest.raises(MismatchError, match="any number on rank"):
        hvd.alltoall(mine, name="other") if rank == 1 else hvd.alltoall_(mine, name="other")
    _works()
    return str(caught.value)


def test_alltoall_in_place_needs_as_many_rows_everywhere(worlds: Any) -> None:
    (text,) = set(worlds.of(3).run(_alltoall_in_place_of_other_rows))
    assert "rows, of which each gets as many as it sends" in text
    assert "[6] on rank 1" in text or "[3] on rank" in text


def _alltoall_in_place_while_one_has_joined() -> None:
    if hvd.rank() == 0:
        hvd.join()
        return
    mine = np.arange(6, dtype=np.float32)
    with pytest.raises(MismatchError, match="needs all ranks"):
        hvd.alltoall_(mine, name="bad")
    assert mine.tolist() == [0, 1, 2, 3, 4, 5]
    hvd.join()


def test_alltoall_in_place_needs_all_ranks(worlds: Any) -> None:
    worlds.of(3).run(_alltoall_in_place_while_one_has_joined)


def _gather_and_scatter(counts: list[int], root: int, dtype: str, is_even: bool) -> None:
    n, rank = hvd.size(), hvd.rank()
    mine = _block(rank, (counts[rank], 2), dtype)
    everything = np.concatenate([_block(r, (counts[r], 2), dtype) for r in range(n)])
    gathered = hvd.gather(mine, root, name="gather")
    assert (gathered is None) == (rank != root)
    if gathered is not None:
        np.testing.assert_array_equal(gathered, everything)
    given_rows = everything if rank == root else np.empty((0, 2), dtype)
    splits = None if is_even else counts
    back = hvd.scatter(given_rows, root, splits=splits, name="scatter")
    np.testing.assert_array_equal(back, everything[_my_rows(len(everything))] if is_even else mine)


@pytest.mark.parametrize("n_ranks", [1, 3, 4])
def test_gather_and_scatter_of_any_rows(worlds: Any, n_ranks: int) -> None:
    counts = st.lists(st.one_of(st.integers(0, 4), st.integers(0, 5000)), min_size=n_ranks, max_size=n_ranks)

    @_EXAMPLES
    @given(counts=counts, root=st.integers(0, n_ranks - 1), dtype=st.sampled_from(DTYPES), is_even=st.booleans())
    def check(counts: list[int], root: int, dtype: str, is_even: bool) -> None:
        worlds.of(n_ranks).run(_gather_and_scatter, counts, root, dtype, is_even)

    check()


# --- asynchronous and grouped


def _check_groups() -> None:
    n, rank = hvd.size(), hvd.rank()
    arrays = [np.full((n + i, 2), rank + 1, dtype) for i, dtype in enumerate(DTYPES[1:])]
    total = n * (n + 1) // 2
    for result, array in zip(hvd.grouped_reducescatter(arrays, op=hvd.Sum, name="rs"), arrays, strict=True):
        np.testing.assert_array_equal(result, np.full_like(array[_my_rows(len(array))], total))
    reduced = hvd.grouped_reduce(arrays, n - 1, op=hvd.Sum, name="r")
    gathered = hvd.grouped_gather(arrays, n - 1, name="g")
    assert (reduced is None) == (gathered is None) == (rank != n - 1)
    for i, array in enumerate(arrays if rank == n - 1 else []):
        assert reduced is not None
        assert gathered is not None
        np.testing.assert_array_equal(reduced[i], np.full_like(array, total))
        np.testing.assert_array_equal(gathered[i], np.concatenate([np.full_like(array, r + 1) for r in range(n)]))
    splits = [None, [len(arrays[1])] + [0] * (n - 1)]
    even, uneven = hvd.grouped_scatter(arrays[:2], 0, splits, name="s")
    np.testing.assert_array_equal(even, np.ones_like(arrays[0][_my_rows(n)]))
    np.testing.assert_array_equal(uneven, np.ones((len(arrays[1]) * (rank == 0), 2)))


def test_groups(world: Ranks) -> None:
    world.run(_check_groups)


def _check_in_place() -> None:
    n, rank = hvd.size(), hvd.rank()
    inputs = [[values(r, 7 * 3, dtype, "sum").reshape(7, 3) for r in range(n)] for dtype in DTYPES[1:]]
    totals = hvd.grouped_allreduce([of_ranks[rank] for of_ranks in inputs], op=hvd.Sum)
    own = _my_rows(7)
    mine = [of_ranks[rank].copy() for of_ranks in inputs]
    for root in range(n):
        for in_place in (hvd.grouped_reduce_, lambda *a, **k: hvd.synchronize(hvd.grouped_reduce_async_(*a, **k))):
            work = [array.copy() for array in mine]
            results = in_place(work, root, op=hvd.Sum, name="reduce")
            for result, array, total, before in zip(results, work, totals, mine, strict=True):
                assert result is array
                assert result.tobytes() == (total if rank == root else before).tobytes()
    outputs = [np.zeros_like(total[own]) for total in totals]
    results = hvd.grouped_reducescatter(mine, op=hvd.Sum, name="shares", outputs=outputs)
    for result, output, total, array in zip(results, outputs, totals, mine, strict=True):
        assert result is output
        assert result.tobytes() == total[own].tobytes()
        # The engine writes to the memory given, also where only some ranks give any; or to a copy that is brought back.
        strided = np.zeros((2 * len(result), 3), array.dtype)[::2]
        for memory in (np.zeros_like(result), strided, None if rank == 0 else np.zeros_like(result)):
            for share in (
                hvd.reducescatter(array, op=hvd.Sum, name="one", output=memory),
                hvd.synchronize(hvd.reducescatter_async(array, op=hvd.Sum, name="one", output=memory)),
            ):
                assert memory is None or share is memory
                np.testing.assert_array_equal(share, total[own])
    with pytest.raises(InvalidArgumentError, match=r"the output is float64\[8, 3\] but the "):
        hvd.reducescatter(np.ones((7, 3)), output=np.ones((8, 3)))
    with pytest.raises(InvalidArgumentError, match="the output is float32"):
        hvd.reducescatter(np.ones((n, 3)), output=np.ones((1, 3), np.float32))
    with pytest.raises(InvalidArgumentError, match="read-only"):
        hvd.reducescatter(np.ones((n, 3)), output=np.broadcast_to(1.0, (1, 3)))
    with pytest.raises(InvalidArgumentError, match="lies in the memory of a tensor"):
        hvd.reducescatter(whole := np.ones((n, 3)), output=whole[:1])
    with pytest.raises(InvalidArgumentError, match="2 tensors but 1 outputs"):
        hvd.grouped_reducescatter([np.ones((n, 3))] * 2, outputs=[np.ones((1, 3))])


def test_in_place(world: Ranks) -> None:
    world.run(_check_in_place)


def _check_in_place_in_a_set() -> None:
    ends = hvd.add_process_set([1, 3])
    if ends.included():
        output = np.zeros(2 if hvd.rank() == 1 else 1, np.int64)
        hvd.reducescatter(np.arange(3), op=hvd.Sum, process_set=ends.lane(0), output=output)
        assert output.tolist() == ([0, 2] if hvd.rank() == 1 else [4])
    else:
        with pytest.raises(InvalidArgumentError, match="is not in process set"):
            hvd.reducescatter(np.arange(3), process_set=ends, output=np.zeros(3, np.int64))
    hvd.remove_process_set(ends)


def test_in_place_in_a_process_set(worlds: Any) -> None:
    worlds.of(4).run(_check_in_place_in_a_set)


# --- process sets


def _in_a_set() -> None:
    ends = hvd.add_process_set([0, 3])
    if ends.included():
        rank = hvd.rank()
        mine = np.array([rank, rank + 10, rank + 20])
        own = hvd.reducescatter(mine, op=hvd.Sum, process_set=ends)
        assert own.tolist() == ([3, 23] if rank == 0 else [43])
        rows, counts = hvd.alltoall(mine, splits=[1, 2] if rank == 0 else [3, 0], process_set=ends)
        assert rows.tolist() == ([0, 3, 13, 23] if rank == 0 else [10, 20])
        assert counts.tolist() == ([1, 3] if rank == 0 else [2, 0])
        gathered = hvd.gather(mine, 3, process_set=ends)
        assert gathered is None if rank == 0 else gathered is not None and gathered.tolist() == [0, 10, 20, 3, 13, 23]
        assert hvd.scatter(mine, 3, process_set=ends).tolist() == ([3, 13] if rank == 0 else [23])
        total = hvd.reduce(mine, 3, op=hvd.Max, process_set=ends)
        assert total is None if rank == 0 else total is not None and total.tolist() == [3, 13, 23]
        with pytest.raises(InvalidArgumentError, match="root_rank 1 is not in the process set"):
            hvd.gather(mine, 1, process_set=ends)
    hvd.remove_process_set(ends)


def test_in_a_process_set(worlds: Any) -> None:
    worlds.of(4).run(_in_a_set)


# --- errors


def _refused_everywhere(what: str) -> None:
    n = hvd.size()
    ones = np.ones((n + 1, 2), np.float32)
    with pytest.raises(InvalidArgumentError) as caught:
        {
            "uneven": lambda: hvd.alltoall(ones, name="bad"),
            "uneven in place": lambda: hvd.alltoall_(ones, name="bad"),
            "sum": lambda: hvd.alltoall(ones, splits=[1] * n, name="bad"),
            "negative": lambda: hvd.alltoall(ones, splits=[-1] + [1] * (n - 1), name="bad"),
            "number": lambda: hvd.alltoall(ones, splits=[1] * (n + 1), name="bad"),
            "kind": lambda: hvd.alltoall(ones, splits=[0.5] * n, name="bad"),
            "scalar": lambda: hvd.reducescatter(np.float32(1), name="bad"),
            "root": lambda: hvd.gather(ones, n, name="bad"),
        }[what]()
    text = {
        "uneven": f"alltoall 'bad': the first dimension of [{n + 1}, 2] cannot be cut into {n} equal parts",
        "uneven in place": f"alltoall 'bad': the first dimension of [{n + 1}, 2] cannot be cut into {n} equal parts",
        "sum": f"must add up to the first dimension of the tensor, whose shape is [{n + 1}, 2]",
        "negative": "has a negative number",
        "number": f"splits must have one number for each of the {n} ranks, these are {n + 1}",
        "kind": "splits must be whole numbers, one for each rank; got float64",
        "scalar": "reducescatter 'bad': a scalar has no first dimension",
        "root": f"gather 'bad': root_rank {n} is not a rank",
    }[what]
    assert text in str(caught.value)
    _works()


def _works() -> None:
    n = hvd.size()
    assert hvd.alltoall(np.arange(n), splits=[1] * n, name="good")[0].tolist() == [hvd.rank()] * n


@pytest.mark.parametrize("what", ["uneven", "uneven in place", "sum", "negative", "number", "kind", "scalar", "root"])
def test_calls_that_cannot_be(worlds: Any, what: str) -> None:
    worlds.of(3).run(_refused_everywhere, what)


def _one_rank_is_wrong() -> str:
    n, rank = hvd.size(), hvd.rank()
    splits = [1] * (n - 1) + [2 if rank == 1 else 1]
    with pytest.raises(InvalidArgumentError) as caught:
        hvd.alltoall(np.ones((n, 2)), splits=splits, name="good")
    _works()
    return str(caught.value)


def test_wrong_splits_of_one_rank_fail_everywhere(worlds: Any) -> None:
    texts = worlds.of(3).run(_one_rank_is_wrong)
    assert "splits [1, 1, 2] must add up to the first dimension of the tensor, whose shape is [3, 2]" in texts[1]
    for text in (texts[0], texts[2]):
        assert "alltoall 'good': rank 1 gave splits that cannot be; its own error says why" in text


def _disagree(what: str) -> str:
    odd = int(hvd.rank() == hvd.size() - 1)
    block = np.ones((4 * hvd.size(), 2), np.float32)
    with pytest.raises(MismatchError) as caught:
        {
            "kind": lambda: hvd.reduce(block, 0, name="m") if odd else hvd.reducescatter(block, name="m"),
            "rows": lambda: hvd.reducescatter(block[odd:], name="m"),
            "width": lambda: hvd.alltoall(block[:, : 2 - odd], name="m"),
            "root": lambda: hvd.scatter(block, odd, name="m"),
            "dtype": lambda: hvd.gather(block.astype(np.float64) if odd else block, 0, name="m"),
            "op": lambda: hvd.reduce(block, 0, op=hvd.Max if odd else hvd.Sum, name="m"),
        }[what]()
    _works()
    return str(caught.value)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("kind", "collective reducescatter on rank 0 but reduce on rank 2"),
        ("rows", "shape [12, 2] on rank 0 but [11, 2] on rank 2"),
        ("width", "shape [*, 2] on rank 0 but [*, 1] on rank 2 (only the first dimension may differ)"),
        ("root", "root_rank 0 on rank 0 but 1 on rank 2"),
        ("dtype", "dtype float32 on rank 0 but float64 on rank 2"),
        ("op", "reduce op sum on rank 0 but max on rank 2"),
    ],
)
def test_disagreement(worlds: Any, what: str, text: str) -> None:
    texts = worlds.of(3).run(_disagree, what)
    assert len(set(texts)) == 1
    assert text.replace("on rank 0", "on rank 1") in texts[0] or text in texts[0]  # whichever the late one met


# --- ranks on two hosts, of which neighbours are never on the same one


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[Ranks]:
    def env_of(rank: int) -> dict[str, str]:
        return {"CIRANDA_HOST_ID": f"host{rank % 2}", "CIRANDA_HOST": f"host{rank % 2}"}

    with Ranks(4, env_of=env_of) as ranks:
        yield ranks


def _core_knows_peers() -> int:
    """How many other ranks share memory with this one."""
    engine = _basics.engine()
    return sum(engine.peer(rank)["shares_memory"] for rank in range(hvd.size()) if rank != hvd.rank())


def test_rows_of_every_type_over_two_hosts(two_hosts: Ranks) -> None:
    assert two_hosts.run(_core_knows_peers) == [1, 1, 1, 1]
    two_hosts.run(rows_between_hosts.check)


def test_rows_over_two_hosts(two_hosts: Ranks) -> None:
    two_hosts.run(_even_alltoall)
    two_hosts.run(_in_a_set)
    for width, table in ((1, [[3, 0, 5, 1]] * 4), (3, [[0, 0, 0, 9000], [2, 0, 0, 0], [0] * 4, [1, 70_000, 0, 4]])):
        two_hosts.run(_alltoall, table, "float32", width)
    for counts, root, is_even in (([5, 0, 20_000, 1], 2, False), ([1, 2, 3, 5], 1, True), ([0, 0, 0, 0], 3, True)):
        two_hosts.run(_gather_and_scatter, counts, root, "int16", is_even)
    texts = two_hosts.run(_one_rank_is_wrong)
    assert all("alltoall 'good'" in text for text in texts)


# --- calls that are made again


def _check_repeated_calls() -> None:
    n, rank = hvd.size(), hvd.rank()
    for step in range(60):
        rows = 40_000 * n if step % 10 == 9 else 3 * n  # another length now and then, which all must notice
        mine = [np.arange(rows, dtype=np.int64) * (step + 1) + r for r in range(n)]
        total = sum(mine)
        assert np.array_equal(hvd.allgather(mine[rank], name="all"), np.concatenate(mine))
        assert np.array_equal(hvd.reducescatter(mine[rank], op=hvd.Sum, name="sum"), total[_my_rows(rows)])
        output = np.empty(rows // n, np.int64)
        assert hvd.reducescatter(mine[rank], op=hvd.Sum, name="into", output=output) is output
        assert np.array_equal(output, total[_my_rows(rows)])
        exchanged = mine[rank].copy()
        assert hvd.alltoall_(exchanged, name="exchange") is exchanged
        assert np.array_equal(exchanged, np.concatenate([m[_my_rows(rows)] for m in mine]))
        uneven = np.full(rank + 1, step)
        assert np.array_equal(hvd.allgather(uneven, name="uneven"), np.full(n * (n + 1) // 2, step))


def test_calls_that_are_made_again(world: Ranks) -> None:
    world.run(_check_repeated_calls)
