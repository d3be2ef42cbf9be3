"""What the ranks of several tests of ciranda.mxnet share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mxnet as mx
import numpy as np

import ciranda.mxnet as hvd

Array = Any


def raised(attempt: Callable[[], Any]) -> BaseException:
    """Return what `attempt`, or the wait for what it returns, raises."""
    try:
        result = attempt()
        for each in result if isinstance(result, (list, tuple)) else [result]:
            if isinstance(each, mx.nd.NDArray):
                each.asnumpy()
    except Exception as error:
        return error
    raise AssertionError(f"no error, but {result!r}")


def rows_of_rank(rank: int, shape: tuple[int, ...] = (6, 4)) -> Array:
    return np.random.default_rng(rank).normal(size=shape).astype(np.float32)


def all_rows(shape: tuple[int, ...] = (6, 4)) -> list[Array]:
    return [rows_of_rank(rank, shape) for rank in range(hvd.size())]


def agree(arrays: dict[str, Array]) -> None:
    """Every rank has the same arrays, bit for bit."""
    everyones = hvd.allgather_object({name: np.asarray(array) for name, array in arrays.items()})
    for rank, theirs in enumerate(everyones):
        assert theirs.keys() == everyones[0].keys(), rank
        for name, array in theirs.items():
            np.testing.assert_array_equal(array, everyones[0][name], err_msg=f"{name} of rank {rank}")
