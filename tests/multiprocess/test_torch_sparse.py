"""sparse_allreduce_async over real processes."""

from __future__ import annotations

import time
import warnings
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import ciranda.torch as hvd
from ciranda.errors import InvalidArgumentError, MismatchError
from ciranda.torch import sparse_rows

pytestmark = pytest.mark.multiprocess

SIZES = pytest.mark.parametrize("n_ranks", [1, 2, 3, 4])


def _tensor(rank: int, rows: int, shape: tuple[int, ...], dtype: torch.dtype, sparse_dims: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * rank + rows)
    indices = torch.stack([torch.randint(0, size, (rows,), generator=generator) for size in shape[:sparse_dims]])
    values = torch.randint(-9, 9, (rows, *shape[sparse_dims:]), generator=generator).to(dtype)
    return torch.sparse_coo_tensor(indices, values, shape, check_invariants=False)


def _check(rows: int, dtype: torch.dtype, op: int, sparse_dims: int) -> None:
    """`rows` of rank 0, and one more of each further rank, in a table of 60."""
    n, shape = hvd.size(), (60, 4, 2)
    tensors = [_tensor(rank, rows + rank if rows else 0, shape, dtype, sparse_dims) for rank in range(n)]
    handle = hvd.sparse_allreduce_async(tensors[hvd.rank()], "sparse", op)
    result = hvd.synchronize(handle)
    assert result.is_sparse
    assert result.is_coalesced()
    assert result.dtype == dtype
    total = torch.stack([tensor.to_dense().double() for tensor in tensors]).sum(dim=0)
    if op == hvd.Average:
        total = total / n if dtype.is_floating_point else torch.div(total, n, rounding_mode="trunc")
    torch.testing.assert_close(result.to_dense(), total.to(dtype), rtol=1e-6, atol=0)
    # Rows that add up to zero are rows all the same, and no others are there.
    everyones = torch.cat([tensor.coalesce().indices() for tensor in tensors], dim=1).unique(dim=1)
    assert torch.equal(result.indices(), everyones)


@SIZES
@pytest.mark.parametrize("rows", [0, 1, 5, 200], ids=lambda rows: f"{rows}rows")
@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average], ids=["sum", "average"])
def test_results(worlds: Any, n_ranks: int, rows: int, op: int) -> None:
    """Few rows are gathered, many made dense: the result is the same."""
    world = worlds.of(n_ranks)
    for dtype in (torch.float32, torch.float64, torch.int64):
        world.run(_check, rows, dtype, op, 1)
    world.run(_check, rows, torch.float64, op, 2)


def _check_large_integers(rows: int, dtype: torch.dtype) -> None:
    """Sums that the type has no room for are averaged all the same, and toward zero."""
    inputs = []
    for rank in range(hvd.size()):
        generator = torch.Generator().manual_seed(rank)
        values = torch.randint(-(2**62), 2**62, (rows, 3), generator=generator) * 2 >> (64 - torch.iinfo(dtype).bits)
        inputs.append(torch.sparse_coo_tensor(torch.arange(rows)[None] * 2, values.to(dtype), (400, 3)).coalesce())
    result = hvd.sparse_allreduce_async(inputs[hvd.rank()], f"large {dtype} {rows}", hvd.Average).wait().to_dense()
    columns = zip(*(each.to_dense().flatten().tolist() for each in inputs), strict=True)
    wanted = [abs(sum(column)) // hvd.size() * (1 if sum(column) > 0 else -1) for column in columns]
    assert result.flatten().tolist() == wanted


@pytest.mark.parametrize("rows", [3, 200])  # gathered, and dense
def test_averages_of_integers_do_not_wrap(worlds: Any, rows: int) -> None:
    for dtype in (torch.int8, torch.int32, torch.int64):
        worlds.of(3).run(_check_large_integers, rows, dtype)


def _precise(rows: int) -> None:
    """Sums of 16-bit numbers are formed in 32 bits: in float16, 2048 + 1 is 2048."""
    for dtype in (torch.float16, torch.bfloat16):
        mine = 2048.0 if hvd.rank() == 0 else 1.0
        tensor = torch.sparse_coo_tensor(
            [list(range(rows))], torch.full((rows, 1), mine), (5000, 1), check_invariants=False
        )
        result = hvd.sparse_allreduce_async(tensor.to(dtype), "narrow", hvd.Sum)()
        assert result.values().flatten().tolist() == [float(torch.tensor(2048.0 + hvd.size() - 1).to(dtype))] * rows


@pytest.mark.parametrize("rows", [10, 4000])
def test_narrow_types(worlds: Any, rows: int) -> None:
    """Gathered, and made dense."""
    worlds.of(3).run(_precise, rows)


def _rows_of_zeros(n_rows: int) -> None:
    """A row of zeros, on all ranks or on one, is a row of the result; one that nobody has is not."""
    rank = hvd.rank()
    rows = torch.arange(n_rows)
    values = torch.full((n_rows, 2), float(rank + 1))
    values[0] = 0.0
    if rank == 0:
        rows[-1], values[-1] = 49, 0.0  # which only this rank has
    tensor = torch.sparse_coo_tensor(rows[None], values, (50, 2), check_invariants=False)
    result = hvd.sparse_allreduce_async(tensor, "zeros", hvd.Sum).wait()
    assert result.indices()[0].tolist() == [*range(n_rows), 49]
    wanted = torch.full((n_rows + 1, 2), 6.0)
    wanted[0], wanted[-1], wanted[-2] = 0.0, 0.0, 5.0
    assert torch.equal(result.values(), wanted)


@pytest.mark.parametrize("n_rows", [3, 40])
def test_rows_of_zeros(worlds: Any, n_rows: int) -> None:
    """Gathered, and made dense."""
    worlds.of(3).run(_rows_of_zeros, n_rows)


def _in_any_order() -> None:
    """Ranks start and wait in different orders; half of the results are made dense."""
    rank = hvd.rank()
    names = [f"t{i}" for i in range(6)]
    order = names[rank:] + names[:rank]
    handles = {}
    for name in order:
        rows = 2 if int(name[1:]) % 2 else 80
        handles[name] = hvd.sparse_allreduce_async(_tensor(rank, rows, (50, 3), torch.float64), name, hvd.Sum)
    while not all(handles[name].poll() for name in order[:2]):
        pass
    results = {name: handles[name].wait() for name in reversed(order)}
    for name in names:
        rows = 2 if int(name[1:]) % 2 else 80
        expected = sum(_tensor(r, rows, (50, 3), torch.float64).to_dense() for r in range(hvd.size()))
        assert torch.equal(results[name].to_dense(), expected)


@SIZES
def test_waiting_in_any_order(worlds: Any, n_ranks: int) -> None:
    worlds.of(n_ranks).run(_in_any_order)


def _wait_in_opposite_orders() -> None:
    first, second = (
        hvd.sparse_allreduce_async(_tensor(hvd.rank(), 3, (900, 2), torch.float32), name, hvd.Sum) for name in "ab"
    )
    for handle in (first, second) if hvd.rank() else (second, first):
        handle.wait()


def test_waiting_in_opposite_orders(worlds: Any) -> None:
    """Each waits for what the other has not waited for yet."""
    worlds.of(2).run(_wait_in_opposite_orders)


def _wait_late() -> None:
    """Rank 1 makes another call before it waits, or never waits, for what rank 0 waits for before that call."""
    for rows in (2, 200):  # gathered, and made dense
        handle = hvd.sparse_allreduce_async(_tensor(hvd.rank(), rows, (60, 4), torch.float64), f"late {rows}", hvd.Sum)
        if hvd.rank() == 0:
            handle.wait()
        hvd.allreduce(torch.ones(1), name="between")
        if hvd.rank() == 1 and rows == 2:
            handle.wait()


def test_who_waits_late_keeps_nobody_waiting(worlds: Any) -> None:
    worlds.of(2).run(_wait_late)


def _travels(rows: int) -> int:
    """How many bytes of values come to each rank."""
    handle = hvd.sparse_allreduce_async(_tensor(hvd.rank(), rows, (1000, 16), torch.float32), "bytes", hvd.Sum)
    handle.wait()
    assert (handle._dense is None) != (handle._gathered is None)
    return -1 if handle._gathered is None else int(handle._gathered.wait()[1].shape[0])


def test_dense_where_it_is_cheaper(worlds: Any) -> None:
    """A row of 16 floats and its index are 72 bytes, the table is 64,000."""
    assert worlds.of(2).run(_travels, 10) == [20, 20]
    assert worlds.of(2).run(_travels, 1000) == [-1, -1]


def test_rows_are_added_up_in_their_order() -> None:
    """Whatever way of sorting is fastest on a machine."""
    generator = torch.Generator().manual_seed(0)
    for n_rows, n_ranks in ((1, 3), (50, 3), (3000, 4)):
        parts = [torch.randperm(2 * n_rows, generator=generator)[:n_rows].sort().values for _ in range(n_ranks)]
        indices = torch.stack([torch.cat(parts) // 2, torch.cat(parts) % 2], dim=1)
        values = torch.randn(len(indices), 3, generator=generator) * 10 ** torch.randint(
            -9, 9, (len(indices), 1), generator=generator
        )
        wanted = torch.zeros(2 * n_rows, 3)
        for index, row in zip(torch.cat(parts).tolist(), values, strict=True):
            wanted[index] += row
        result = sparse_rows.sum_of(indices, values, (n_rows, 2, 3), torch.float32)
        assert torch.equal(result.to_dense().reshape(-1, 3), wanted)
        assert torch.equal(result.indices(), indices.unique(dim=0).t())
    nothing = sparse_rows.sum_of(torch.empty(0, 2, dtype=torch.int64), torch.empty(0, 3), (5, 2, 3), torch.float32)
    assert nothing.shape == (5, 2, 3)


# What rank 1 does otherwise, with enough rows that it would go on differently; and what all ranks are told.
DISAGREEMENTS: dict[str, tuple[Any, str]] = {
    "op": (
        lambda odd: hvd.sparse_allreduce_async(_tensor(0, 3, (20, 2), torch.float32), "t", hvd.Sum - odd),
        "reduce op sum on rank 0 but average on rank 1",
    ),
    "divisor": (
        lambda odd: hvd.sparse_allreduce_async(
            _tensor(0, 3, (20, 2), torch.float32), "t", None, divisor="world" if odd else "contributors"
        ),
        "divisor contributors on rank 0 but world on rank 1",
    ),
    "dtype": (
        lambda odd: hvd.sparse_allreduce_async(
            _tensor(0, 5, (20, 2), torch.float64 if odd else torch.float32), "t", None
        ),
        "dtype float32 on rank 0 but float64 on rank 1",
    ),
    "rows of the table": (
        lambda odd: hvd.sparse_allreduce_async(_tensor(0, 8, (5000 if odd else 5, 2), torch.float32), "t", None),
        "shape [5, 2] on rank 0 but [5000, 2] on rank 1",
    ),
    "dimensions": (
        lambda odd: hvd.sparse_allreduce_async(_tensor(0, 8, (20, 2, *[1] * odd), torch.float32), "t", None),
        "shape [20, 2] on rank 0 but [20, 2, 1] on rank 1",
    ),
    "sparse dimensions": (
        lambda odd: hvd.sparse_allreduce_async(_tensor(0, 2, (20, 9), torch.float32, 1 + odd), "t", None),
        "number of sparse dimensions 1 on rank 0 but 2 on rank 1",
    ),
}


def _mismatched() -> list[str]:
    messages = []
    for start, _ in DISAGREEMENTS.values():
        with pytest.raises(MismatchError) as caught:
            start(hvd.rank()).wait()
        messages.append(str(caught.value))
    with pytest.raises(ValueError, match=r"not torch\.strided"):
        hvd.sparse_allreduce_async(torch.ones(2), "dense", hvd.Sum)
    with pytest.raises(ValueError, match='divisor="world" is one of op=Average without weights'):
        hvd.sparse_allreduce_async(_tensor(0, 3, (20, 2), torch.float32), "sum", hvd.Sum, divisor="world")
    with pytest.raises(ValueError, match="Average and Sum"):
        hvd.sparse_allreduce_async(_tensor(0, 3, (20, 2), torch.float32), "max", hvd.Max)
    return messages


def test_errors(worlds: Any) -> None:
    for messages in worlds.of(2).run(_mismatched):
        assert messages == [f"sparse allreduce 't': {text}" for _, text in DISAGREEMENTS.values()]


def _check_weighted(rows: int, dtype: torch.dtype, more_of_each: int) -> None:
    """Rank 0 weighs nothing in every second call, and the others differ; each rank has more rows, or fewer."""
    n, rank, shape = hvd.size(), hvd.rank(), (60, 4, 2)
    tensors = [_tensor(r, max(rows + more_of_each * r, 0), shape, dtype) for r in range(n)]
    for first in (0.0, 1e300) if n > 1 else (2.5,):
        weights = [first, *(3.0 * r + 0.5 for r in range(1, n))]
        result = hvd.sparse_allreduce_async(tensors[rank], "weighted", None, weight=weights[rank]).wait()
        assert result.dtype == dtype
        wide = torch.stack([tensor.to_dense().double() for tensor in tensors])
        shares = torch.tensor(weights, dtype=torch.float64) / sum(weights)
        wanted = (wide * shares[:, None, None, None]).sum(dim=0)
        tolerance = {torch.float64: 1e-13, torch.float32: 1e-5}.get(dtype, 2e-2)
        torch.testing.assert_close(result.to_dense().double(), wanted, rtol=tolerance, atol=9 * tolerance)


@SIZES
def test_weights(worlds: Any, n_ranks: int) -> None:
    """Gathered, and made dense."""
    for rows in (0, 2, 200):
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            for more_of_each in (1, -1) if rows else (0,):
                worlds.of(n_ranks).run(_check_weighted, rows, dtype, more_of_each)


def _check_weights_that_cannot_be() -> None:
    rank, tensor = hvd.rank(), _tensor(0, 3, (20, 2), torch.float32)
    for weight, text in ((-1.0, "the weight -1 of rank 1 is not"), (float("nan"), "the weight nan of rank 1 is not")):
        with pytest.raises(ValueError, match=text):
            hvd.sparse_allreduce_async(tensor, "bad", None, weight=weight if rank == 1 else 1.0).wait()
    with pytest.raises(ValueError, match="'none': the ranks' weights add up to 0"):
        hvd.sparse_allreduce_async(tensor, "none", None, weight=0.0).wait()
    with pytest.raises(MismatchError, match="'some': weight given on rank 1 but none on rank 0"):
        hvd.sparse_allreduce_async(tensor, "some", None, weight=2.0 if rank == 1 else None).wait()
    for bad, op in ((tensor, hvd.Sum), (_tensor(0, 3, (20, 2), torch.int64), None)):
        with pytest.raises(ValueError, match="a weight needs op=Average, of floating-point or complex numbers"):
            hvd.sparse_allreduce_async(bad, "sum", op, weight=1.0)
    assert torch.equal(hvd.sparse_allreduce_async(tensor, "bad", None).wait().to_dense(), tensor.to_dense())


def test_weights_that_cannot_be(worlds: Any) -> None:
    worlds.of(2).run(_check_weights_that_cannot_be)


def _without_the_last() -> None:
    """A rank that has joined adds nothing and does not count, gathered or made dense."""
    last = hvd.size() - 1
    if hvd.rank() != last:
        for rows in (2, 200):
            tensors = [_tensor(r, rows, (60, 4), torch.float64) for r in range(last)]
            dense = torch.stack([tensor.to_dense() for tensor in tensors])
            total = dense.sum(dim=0)
            for op, divisor, wanted in (
                (hvd.Sum, "contributors", total),
                (hvd.Average, "contributors", total / last),
                (hvd.Average, "world", total / hvd.size()),
            ):
                result = hvd.sparse_allreduce_async(tensors[hvd.rank()], "joined", op, divisor=divisor).wait()
                torch.testing.assert_close(result.to_dense(), wanted)
            weighted = hvd.sparse_allreduce_async(tensors[hvd.rank()], "w", None, weight=1.0 + 2 * hvd.rank()).wait()
            torch.testing.assert_close(weighted.to_dense(), (dense[0] + 3 * dense[1]) / 4)
    hvd.join()


def test_ranks_that_have_joined_do_not_count(worlds: Any) -> None:
    worlds.of(3).run(_without_the_last)


def _join_too_early(rows: int) -> None:
    """Rank 1 joins before rank 0 has told how many rows it has: what rank 1 has told that it has never comes."""
    token, tensor = torch.ones(1), _tensor(hvd.rank(), rows, (60, 4), torch.float32)
    if hvd.rank() == 0:
        hvd.recv(token, 1)
        with pytest.raises(MismatchError, match="'early': a rank has joined while it was under way"):
            hvd.sparse_allreduce_async(tensor, "early", hvd.Sum).wait()
        hvd.recv(token, 1)  # else rank 1 may be so late that all have joined, and its rows wait for somebody
        hvd.join()
    else:
        handle = hvd.sparse_allreduce_async(tensor, "early", hvd.Sum)
        joined = hvd.join_async()
        hvd.send(token, 0)
        with pytest.raises(InvalidArgumentError, match=r"'early\.(rows|dense)' was called after join\(\)"):
            handle.wait()
        hvd.send(token, 0)
        hvd.synchronize(joined)
    assert hvd.allreduce(token, op=hvd.Sum, name="after")[0] == 2


@pytest.mark.parametrize("rows", [2, 200])  # gathered, and dense
def test_joining_before_rows_have_come(worlds: Any, rows: int) -> None:
    worlds.of(2).run(_join_too_early, rows)


def _train_embedding() -> None:
    """Ranks with uneven batches, one without any: what comes out is one process's step with the whole batch."""
    n, rank = hvd.size(), hvd.rank()
    words = torch.arange(12) * 7 % 50
    cuts = [12 * r * r // n**2 for r in range(n + 1)]
    cuts[1] = 0  # rank 0 has none
    mine = words[cuts[rank] : cuts[rank + 1]]
    models = []
    for is_distributed in (True, False):
        torch.manual_seed(0)
        model = torch.nn.Embedding(50, 3, sparse=True, dtype=torch.float64)
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.5)
        batch = words
        if is_distributed:
            optimizer, batch = hvd.DistributedOptimizer(optimizer), mine
            optimizer.set_weight(len(mine))
        for _ in range(3):
            optimizer.zero_grad()
            if len(batch):
                model(batch).square().mean().backward()
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "parameters got a gradient on other ranks")
                optimizer.step()
        models.append(model.weight.detach())
    torch.testing.assert_close(models[0], models[1], rtol=1e-12, atol=1e-12)


def test_weighted_training_with_sparse_gradients(worlds: Any) -> None:
    for n_ranks in (2, 3):
        worlds.of(n_ranks).run(_train_embedding)


# --- without names, in several sets ---


def _unnamed(value: float, process_set: Any = hvd.global_process_set) -> Any:
    row = torch.sparse_coo_tensor([[hvd.rank()]], torch.full((1, 2), value), (900, 2), check_invariants=False)
    return hvd.sparse_allreduce_async(row, None, hvd.Sum, process_set)


def _rows_of(result: torch.Tensor) -> tuple[list[int], list[float]]:
    return result.indices()[0].tolist(), result.values()[:, 0].tolist()


def _count_in_each_set() -> None:
    """The ranks of one set make more calls than the third; and so do those that have not joined."""
    rank, both = hvd.rank(), hvd.add_process_set([0, 1])
    if both.included():
        assert _rows_of(_unnamed(1.0, both).wait()) == ([0, 1], [1.0, 1.0])
    assert _rows_of(_unnamed(2.0).wait()) == ([0, 1, 2], [2.0] * 3)
    if rank != 1:
        for value in (3.0, 4.0):
            assert _rows_of(_unnamed(value).wait()) == ([0, 2], [value] * 2)
    hvd.join()
    assert _rows_of(_unnamed(5.0).wait()) == ([0, 1, 2], [5.0] * 3)
    if both.included():  # where nobody has joined
        assert _rows_of(_unnamed(6.0, both).wait()) == ([0, 1], [6.0] * 2)
    hvd.remove_process_set(both)


def _wait_in_one_set_first() -> None:
    """Rank 1 has started a reduction in two sets. That with rank 2 can be done; then only rank 0 starts the other."""
    rank = hvd.rank()
    low, high = hvd.add_process_set([0, 1]), hvd.add_process_set([1, 2])
    token = torch.ones(1)
    if rank == 0:
        hvd.recv(token, 2)
        _unnamed(1.0, low).wait()
    elif rank == 1:
        later, sooner = _unnamed(1.0, low), _unnamed(2.0, high)
        assert _rows_of(sooner.wait()) == ([1, 2], [2.0] * 2)
        assert _rows_of(later.wait()) == ([0, 1], [1.0] * 2)
    else:
        _unnamed(2.0, high).wait()
        hvd.send(token, 0)
    for each in (low, high):
        hvd.remove_process_set(each)


def _wait_for_sets_in_opposite_orders() -> None:
    both = hvd.add_process_set([0, 1])
    if both.included():
        handles = [_unnamed(1.0, both), _unnamed(2.0, both.lane(0))]
        named = [hvd.sparse_allreduce_async(_tensor(hvd.rank(), 3, (900, 2), torch.float32), n, hvd.Sum) for n in "ab"]
        for handle in reversed([*handles, *named]) if hvd.rank() else [*handles, *named]:
            handle.wait()
    else:
        for name in "ba":
            hvd.sparse_allreduce_async(_tensor(2, 3, (900, 2), torch.float32), name, hvd.Sum).wait()
    hvd.remove_process_set(both)


@pytest.mark.parametrize("calls", [_count_in_each_set, _wait_in_one_set_first, _wait_for_sets_in_opposite_orders])
def test_several_sets(worlds: Any, calls: Any) -> None:
    worlds.of(3).run(calls)


def _add_parameters_before_others_are_heard() -> None:
    """Rank 0 has combined its dense gradients, and has yet to hear that those of rank 1 are sparse."""
    embedding, more = torch.nn.Embedding(4, 2, sparse=hvd.rank() == 1), torch.nn.Linear(2, 1)
    optimizer: Any = torch.optim.SGD(embedding.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, embedding.named_parameters(), sparse_as_dense=True)
    for step in range(3):
        optimizer.zero_grad()
        embedding(torch.tensor([1, 2])).sum().backward()
        if step == 1:
            time.sleep(0.3 * hvd.rank())
            optimizer.add_param_group({"params": list(more.parameters())})
        optimizer.step()


def test_parameters_added_before_others_are_heard(worlds: Any) -> None:
    worlds.of(2).run(_add_parameters_before_others_are_heard)
