"""Every collective that moves rows, with every type, and broadcasts: a script, and a function for others."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from expected import DTYPES, Array, assert_reduced, values

import ciranda as hvd

# One rank has nothing, and one has more than fits into what a transport carries at once.
COUNTS = [0, 5, 30_000, 1]


def _block(number: int, rows: int, dtype: Any) -> Array:
    if dtype is ml_dtypes.bfloat16:
        return values(number, 3 * rows, "float32", "sum").astype(dtype).reshape(rows, 3)
    return values(number, 3 * rows, dtype, "sum").reshape(rows, 3)


def _same(actual: Array | None, wanted: Array) -> None:
    assert actual is not None
    assert actual.dtype == wanted.dtype
    assert actual.shape == wanted.shape
    assert actual.tobytes() == wanted.tobytes(), wanted.dtype


def _check_moves(dtype: Any) -> None:
    n, rank = hvd.size(), hvd.rank()
    counts = [COUNTS[r % len(COUNTS)] for r in range(n)]
    mine = _block(rank, counts[rank], dtype)
    everything = np.concatenate([_block(r, counts[r], dtype) for r in range(n)])
    _same(hvd.allgather(mine, name="allgather"), everything)
    root = n - 1
    gathered = hvd.gather(mine, root, name="gather")
    assert (gathered is None) == (rank != root)
    if gathered is not None:
        _same(gathered, everything)
    rows = everything if rank == root else np.empty((0, 3), everything.dtype)
    _same(hvd.scatter(rows, root, splits=counts, name="scatter"), mine)
    for first in (0, root):
        for n_rows in COUNTS[1:]:
            _same(hvd.broadcast(_block(rank, n_rows, dtype), first, name="broadcast"), _block(first, n_rows, dtype))
    sent = [_block(10 * rank + to, counts[(rank + to) % n], dtype) for to in range(n)]
    came, received = hvd.alltoall(np.concatenate(sent), splits=[len(part) for part in sent], name="alltoall")
    wanted = [_block(10 * source + rank, counts[(source + rank) % n], dtype) for source in range(n)]
    _same(came, np.concatenate(wanted))
    assert received.tolist() == [len(part) for part in wanted]


def _check_reducescatter(dtype: Any) -> None:
    n, rank = hvd.size(), hvd.rank()
    op, name = (hvd.Max, "max") if dtype == "bool" else (hvd.Sum, "sum")
    for n_rows in (2 * n + 1, 20_001):
        inputs = [_block(r, n_rows, dtype) for r in range(n)]
        rows = np.array_split(np.arange(n_rows), n)[rank]  # the first have one more
        share = hvd.reducescatter(inputs[rank], op=op, name="reducescatter")
        _same(share, hvd.allreduce(inputs[rank], op=op, name="allreduce")[rows])
        if dtype is ml_dtypes.bfloat16:
            wide = np.stack(inputs).astype(np.float64)[:, rows]
            allowed = np.abs(wide).sum(axis=0) * 2.0**-8
            assert np.all(np.abs(share.astype(np.float64) - wide.sum(axis=0)) <= allowed)
        else:
            assert_reduced(share, [each[rows] for each in inputs], name, dtype)


def check() -> None:
    """Raise AssertionError if something arrives that is not what NumPy says."""
    for dtype in (*DTYPES, ml_dtypes.bfloat16):
        _check_moves(dtype)
        _check_reducescatter(dtype)


if __name__ == "__main__":
    hvd.init()
    check()
    print(f"rank {hvd.rank()} on host {hvd.cross_rank()}: right")  # noqa: T201
    hvd.shutdown()
