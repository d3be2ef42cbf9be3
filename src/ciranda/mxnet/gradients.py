"""The common handling of gradients by Gluon's trainer and the Module API's optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from mxnet.ndarray import NDArray, array
from mxnet.ndarray.sparse import RowSparseNDArray, row_sparse_array

from ciranda._frameworks.groups import as_many_groups
from ciranda._frameworks.options import check_factor
from ciranda._ops import Average
from ciranda.errors import InvalidArgumentError
from ciranda.mxnet import _calls
from ciranda.mxnet._calls import Call
from ciranda.mxnet.compression import Compressor, NoneCompressor

Item = TypeVar("Item")


def factors_of(predivide: float) -> tuple[float, float]:
    """Return the factors of gradients before they are averaged, and afterwards."""
    check_factor(predivide, Average)
    return 1.0 / predivide, predivide


def groups_of(items: Sequence[Item], num_groups: int, dtype_of: Callable[[Item], Any]) -> list[list[Item]]:
    """Divide the gradients of each dtype into `num_groups` groups; 0: each by itself."""
    if num_groups < 0:
        raise InvalidArgumentError(f"num_groups must not be negative; got {num_groups}")
    if num_groups == 0:
        return [[item] for item in items]
    by_dtype: dict[str, list[Item]] = {}
    for item in items:
        by_dtype.setdefault(str(dtype_of(item)), []).append(item)
    found = []
    for alike in by_dtype.values():
        found += as_many_groups(alike, min(num_groups, len(alike)))
    return found


def reduce_(gradients: Sequence[NDArray], call: Call, compression: type[Compressor] = NoneCompressor) -> None:
    """Average gradients over the ranks, in place: dense ones in MXNet's engine, together; sparse ones row by row.

    A rank outside the process set keeps its own.
    """
    if call.process_set.included() is False:
        return
    dense = [gradient for gradient in gradients if gradient.stype == "default"]
    if compression is NoneCompressor:
        _calls.allreduce_(dense, call)
    else:
        smaller = [compression.compress(gradient) for gradient in dense]
        _calls.allreduce_([small for small, _ in smaller], replace(call, is_chained=True))
        for gradient, (small, context) in zip(dense, smaller, strict=True):
            gradient[:] = compression.decompress(small, context)
    for index, gradient in enumerate(gradients):
        if gradient.stype != "default":
            _reduce_rows_(gradient, call.for_gradient(f"rows.{index}"))


def _reduce_rows_(gradient: RowSparseNDArray, call: Call) -> None:
    """Average a row-sparse gradient: the rows that any rank has, each as a tensor is averaged."""
    if gradient.stype != "row_sparse":
        raise InvalidArgumentError(f"{call.name!r}: gradients of storage type {gradient.stype} cannot be averaged")
    (everyones,) = _calls.allgather([gradient.indices], call)
    indices = np.unique(everyones.asnumpy())
    if indices.size == 0:  # no rank has rows
        return
    own = np.zeros((len(indices), *gradient.shape[1:]), gradient.dtype)
    np.add.at(own, np.searchsorted(indices, gradient.indices.asnumpy()), gradient.data.asnumpy())
    rows = array(own, ctx=gradient.ctx, dtype=gradient.dtype)
    _calls.allreduce_([rows], call.for_gradient("sum"))
    row_sparse_array((rows, indices), shape=gradient.shape, dtype=gradient.dtype, ctx=gradient.ctx).copyto(gradient)
