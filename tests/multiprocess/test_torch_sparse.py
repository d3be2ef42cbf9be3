"""sparse_allreduce_async over real processes."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import ciranda.torch as hvd
from ciranda.errors import MismatchError

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
def test_results(circles: Any, n_ranks: int, rows: int, op: int) -> None:
    """Few rows are gathered, many made dense: the result is the same."""
    circle = circles.of(n_ranks)
    for dtype in (torch.float32, torch.float64, torch.int64):
        circle.run(_check, rows, dtype, op, 1)
    circle.run(_check, rows, torch.float64, op, 2)


def _precise(rows: int) -> None:
    """16-bit sums are formed in 32 bits."""
    n = hvd.size()
    tensor = torch.sparse_coo_tensor([list(range(rows))], torch.full((rows, 1), 2049.0 / 2048), (5000, 1))
    result = hvd.sparse_allreduce_async(tensor.to(torch.float16), "narrow", hvd.Sum)()
    one = torch.tensor(2049.0 / 2048).half()
    assert set(result.values().flatten().tolist()) == {float((one.float() * n).half())}


@pytest.mark.parametrize("rows", [10, 4000])
def test_narrow_types(circles: Any, rows: int) -> None:
    circles.of(3).run(_precise, rows)


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
def test_waiting_in_any_order(circles: Any, n_ranks: int) -> None:
    circles.of(n_ranks).run(_in_any_order, timeout=30)


def _wait_in_opposite_orders() -> None:
    first, second = (
        hvd.sparse_allreduce_async(_tensor(hvd.rank(), 3, (900, 2), torch.float32), name, hvd.Sum) for name in "ab"
    )
    for handle in (first, second) if hvd.rank() else (second, first):
        handle.wait()


def test_waiting_in_opposite_orders(circles: Any) -> None:
    """Each waits for what the other has not waited for yet."""
    circles.of(2).run(_wait_in_opposite_orders, timeout=20)


def _travels(rows: int) -> int:
    """How many bytes of values come to each rank."""
    handle = hvd.sparse_allreduce_async(_tensor(hvd.rank(), rows, (1000, 16), torch.float32), "bytes", hvd.Sum)
    handle.wait()
    assert (handle._dense is None) != (handle._gathered is None)
    return -1 if handle._gathered is None else int(handle._gathered.wait()[1].shape[0])


def test_dense_where_it_is_cheaper(circles: Any) -> None:
    """A row of 16 floats and its index are 72 bytes, the table is 64,000."""
    assert circles.of(2).run(_travels, 10) == [20, 20]
    assert circles.of(2).run(_travels, 1000) == [-1, -1]


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


def test_errors(circles: Any) -> None:
    for messages in circles.of(2).run(_mismatched, timeout=30):
        assert messages == [f"sparse allreduce 't': {text}" for _, text in DISAGREEMENTS.values()]


def _check_weighted(rows: int, dtype: torch.dtype) -> None:
    """Rank 0 weighs nothing in every second call, and the others differ."""
    n, rank, shape = hvd.size(), hvd.rank(), (60, 4, 2)
    tensors = [_tensor(r, rows + r if rows else 0, shape, dtype) for r in range(n)]
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
def test_weights(circles: Any, n_ranks: int) -> None:
    """Gathered, and made dense."""
    for rows in (0, 2, 200):
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            circles.of(n_ranks).run(_check_weighted, rows, dtype)


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


def test_weights_that_cannot_be(circles: Any) -> None:
    circles.of(2).run(_check_weights_that_cannot_be, timeout=30)


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


def test_ranks_that_have_joined_do_not_count(circles: Any) -> None:
    circles.of(3).run(_without_the_last, timeout=30)


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


def test_weighted_training_with_sparse_gradients(circles: Any) -> None:
    for n_ranks in (2, 3):
        circles.of(n_ranks).run(_train_embedding)
