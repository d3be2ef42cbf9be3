"""Sums and averages of the rows of sparse (COO) tensors that have been gathered from all ranks. Pure.

Rows are added up in the order in which they stand, so that the bits do not depend on the machine: torch's coalesce()
sorts them by whatever way is fastest there, which may change the order of equal indices.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

Tensor = torch.Tensor

_NARROW = (torch.float16, torch.bfloat16)


def widened(values: Tensor) -> Tensor:
    """Return `values` in the type in which they are added up: float32 for floats of 16 bits."""
    return values.float() if values.dtype in _NARROW else values


def coalesced(indices: Tensor, values: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the tensor of these values; `indices` is [n_sparse_dims, n_rows], sorted, and none comes twice."""
    return torch.sparse_coo_tensor(
        indices, values, tuple(shape), device="cpu", check_invariants=False, is_coalesced=True
    )


def sum_of(indices: Tensor, values: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return the coalesced tensor of `dtype` in which values of equal indices are added up.

    Args:
        indices: [n_rows, n_sparse_dims], an index a row, which may come more than once.
        values: [n_rows, *dense dims].
        shape: of the result.
        dtype: of the result.
    """
    return _added_up(indices, widened(values), shape).to(dtype)


def mean_of(indices: Tensor, values: Tensor, shape: Sequence[int], n: int) -> Tensor:
    """As sum_of(), divided by `n`: floats rounded once, integers toward zero, without sums that wrap."""
    if not (values.dtype.is_floating_point or values.dtype.is_complex):
        return _mean_of_integers(indices, values, shape, n)
    total = _added_up(indices, widened(values), shape)
    return coalesced(total.indices(), torch.div(total.values(), n).to(values.dtype), shape)


def _mean_of_integers(indices: Tensor, values: Tensor, shape: Sequence[int], n: int) -> Tensor:
    # The quotients are added up, and apart from them the remainders: neither sum wraps.
    wide = values.long()
    quotients = torch.div(wide, n, rounding_mode="floor")
    parts = torch.stack((quotients, wide - n * quotients), dim=-1)
    total = _added_up(indices, parts, (*shape, 2))
    quotient, remainder = total.values().unbind(-1)
    floor = quotient + torch.div(remainder, n, rounding_mode="floor")
    mean = floor + ((floor < 0) & (remainder % n != 0))
    return coalesced(total.indices(), mean.to(values.dtype), shape)


def _added_up(indices: Tensor, values: Tensor, shape: Sequence[int]) -> Tensor:
    n_rows, n_sparse_dims = indices.shape
    if n_rows == 0:
        return coalesced(indices.t(), values, shape)
    places = torch.zeros(n_rows, dtype=torch.int64, device="cpu")  # of the rows, in a table of them all
    for column, size in zip(indices.t(), shape[:n_sparse_dims], strict=True):
        places = places * size + column
    places, order = places.sort(stable=True)
    is_first = torch.ones(n_rows, dtype=torch.bool, device="cpu")
    is_first[1:] = places[1:] != places[:-1]
    first = is_first.nonzero().flatten()
    total = values[order[first]]
    group = is_first.cumsum(0) - 1
    nth = torch.arange(n_rows, device="cpu") - first[group]  # of the rows with the same index
    for number in range(1, int(nth.max()) + 1):  # at most as many as ranks, if these have coalesced theirs
        chosen = nth == number
        total[group[chosen]] += values[order[chosen]]
    return coalesced(indices[order[first]].t(), total, shape)
