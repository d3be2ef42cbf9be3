"""Allreduce of sparse (COO) tensors: their rows are gathered, or the tensors made dense where that is cheaper.

First the ranks exchange their dtypes, numbers of rows and weights; from these numbers all draw the same conclusion,
also if they disagree. Then the rows are gathered, or the dense tensors reduced. Starting a reduction does not wait for
the numbers: the thread that waits for the reduction starts the second half, or another thread as soon as they have
arrived, because other ranks may wait for a reduction for which this rank waits only later, or never.
"""

from __future__ import annotations

import math
import threading
from typing import Any, NamedTuple

import torch

from ciranda import _basics, _core
from ciranda._numbering import Numbering
from ciranda._ops import Average, Divisor, Handle, Sum, divides_by_all
from ciranda.errors import InvalidArgumentError, MismatchError
from ciranda.process_sets import ProcessSet, global_process_set
from ciranda.torch import ops, sparse_rows
from ciranda.torch.completer import call_when_done
from ciranda.torch.tensors import number_of

Tensor = torch.Tensor

_INDEX_BYTES = 8


class _Rows(NamedTuple):
    """A coalesced sparse tensor: `indices` is [n_rows, n_sparse_dims], `values` [n_rows, *dense dims]."""

    indices: Tensor
    values: Tensor


_unnamed = Numbering()


class _Told(NamedTuple):
    """A rank's report to the others, which precedes the shape; of all ranks, columns of a table of float64."""

    rank: Any
    n_rows: Any
    n_sparse_dims: Any  # 0: without a tensor, none is known
    is_weighted: Any
    weight: Any
    op: Any
    divides_by_all: Any
    dtype: Any


_N_TOLD = len(_Told._fields)
_N_SHAPE = 8  # as many numbers are told of every shape; all, of one with more
_NO_DIMENSION = -1


def _tell(tensor: Tensor | None, like: Tensor, op: int, weight: float | None, by_all: bool) -> Tensor:
    rows = (0, 0) if tensor is None else (tensor._nnz(), tensor.sparse_dim())
    told = _Told(_basics.rank(), *rows, weight is not None, weight or 0.0, op, by_all, number_of(like.dtype))
    padding = [_NO_DIMENSION] * (_N_SHAPE - like.ndim)
    return torch.tensor([[*told, *like.shape, *padding]], dtype=torch.float64, device="cpu")


def _said(row: list[float], what: str) -> str:
    told = _Told(*row[:_N_TOLD])
    if what == "shape":
        return str([int(size) for size in row[_N_TOLD:] if size != _NO_DIMENSION])
    number = int(getattr(told, what))
    if what == "divides_by_all":
        return "world" if number else "contributors"
    table: dict[str, int] = _core.REDUCE_OPS if what == "op" else _core.DATA_TYPES
    return str(number) if what == "n_sparse_dims" else next(name for name, its in table.items() if its == number)


def _check_alike(table: Tensor, name: str) -> None:
    """Raise, on all ranks alike, unless they made the same call."""
    columns = _Told(*range(_N_TOLD))
    for text, what in (
        ("reduce op", "op"),
        ("divisor", "divides_by_all"),
        ("dtype", "dtype"),
        ("shape", "shape"),
        ("number of sparse dimensions", "n_sparse_dims"),
    ):
        first_column = _N_TOLD if what == "shape" else getattr(columns, what)
        where = slice(first_column, None if what == "shape" else first_column + 1)
        known = table if what != "n_sparse_dims" else table[table[:, columns.n_sparse_dims] > 0]
        differing = (known[:, where] != known[:1, where]).any(dim=1)
        if differing.any():
            first, other = known[0].tolist(), known[differing][0].tolist()
            raise MismatchError(
                f"sparse allreduce '{name}': {text} {_said(first, what)} on rank {int(first[0])} "
                f"but {_said(other, what)} on rank {int(other[0])}"
            )


def _shares_of(told: _Told, name: str) -> Tensor | None:
    """Return every rank's weight over the sum of all; None without weights. Raises on all ranks alike."""
    if not told.is_weighted.any():
        return None
    if not told.is_weighted.all():
        given, none = int(told.rank[told.is_weighted > 0][0]), int(told.rank[told.is_weighted == 0][0])
        raise MismatchError(f"sparse allreduce '{name}': weight given on rank {given} but none on rank {none}")
    bad = ~told.weight.isfinite() | (told.weight < 0)
    if bad.any():
        weight, rank = float(told.weight[bad][0]), int(told.rank[bad][0])
        raise InvalidArgumentError(
            f"sparse allreduce '{name}': the weight {weight:g} of rank {rank} is not a finite number, 0 or more"
        )
    if told.weight.max() == 0:
        raise InvalidArgumentError(f"sparse allreduce '{name}': the ranks' weights add up to 0")
    ratios: Tensor = told.weight / told.weight.max()  # whose sum cannot overflow
    return ratios / ratios.sum()


class SparseReduction:
    """A pending sparse allreduce. `wait()`, or a call, returns the coalesced sparse result.

    Rows are combined on the CPU: those of a tensor on a GPU are copied there and back, and this rank's host waits for
    them.

    Args:
        tensor: the sparse tensor, or None for one without any rows.
        like: a tensor of the same shape and dtype.
        name: of no other pending operation; None for one that is numbered.
        op: Average or Sum.
        weight: this rank's, in a weighted average.
        divisor: of an average, as for `allreduce()`.
    """

    def __init__(
        self,
        tensor: Tensor | None,
        like: Tensor,
        name: str | None,
        op: int,
        process_set: ProcessSet,
        weight: float | None = None,
        divisor: Divisor = "contributors",
    ) -> None:
        self._divides_by_all = divides_by_all(divisor, op, weight)
        if self._divides_by_all and (op != Average or weight is not None):
            raise InvalidArgumentError('divisor="world" is one of op=Average without weights')
        if weight is not None and (op != Average or not (like.is_floating_point() or like.is_complex())):
            raise InvalidArgumentError("a weight needs op=Average, of floating-point or complex numbers")
        if op not in (Average, Sum):
            raise InvalidArgumentError(f"sparse tensors can be combined with Average and Sum only, not with op={op}")
        self._shape = like.shape
        self._dtype = like.dtype
        self._device = like.device
        self._op = op
        self._process_set = process_set
        self._tensor = None if tensor is None else tensor.detach().coalesce().cpu()
        self._name = f"sparse_allreduce.noname.{_unnamed.next(process_set)}" if name is None else name
        self._weight = weight
        #: What each gathered row is multiplied by, in a weighted average.
        self._row_shares: Tensor | None = None
        told = _tell(self._tensor, like, op, weight, self._divides_by_all)
        self._told = ops.allgather_async(told, f"{self._name}.counts", process_set)
        self._gathered: Handle[list[Tensor]] | None = None
        self._dense: tuple[Handle[Tensor], Handle[Tensor]] | None = None
        self._n_sparse_dims = 0
        self._n_ranks = 0
        #: How many ranks have told what they have, and how many rows these have.
        self._n_told = self._n_rows = 0
        self._failure: Exception | None = None
        self._is_advanced = False
        self._advancing = threading.Lock()
        call_when_done(self._told._operation, self._advance)

    def _advance(self) -> None:
        """Receive the numbers of rows and start the cheaper reduction, once. A failure is kept for wait()."""
        with self._advancing:
            if self._is_advanced:
                return
            try:
                self._start_second_half(self._told.wait())
            except Exception as failure:
                self._failure = failure
            self._is_advanced = True

    def _start_second_half(self, table: Tensor) -> None:
        _check_alike(table, self._name)
        told = _Told(*table.t()[:_N_TOLD])
        n_members = self._process_set.size() if self._divides_by_all else None
        self._n_ranks = n_members or table.shape[0]  # those that take part
        self._n_sparse_dims = int(told.n_sparse_dims.max())
        shares = _shares_of(told, self._name)
        if self._n_sparse_dims == 0:  # no rank has rows: nothing to send
            return
        self._n_told, self._n_rows = table.shape[0], int(told.n_rows.sum())
        row_bytes = math.prod(self._shape[self._n_sparse_dims :]) * self._dtype.itemsize
        is_dense_cheaper = self._n_rows * (row_bytes + self._n_sparse_dims * _INDEX_BYTES) >= (
            self._shape.numel() * self._dtype.itemsize
        )
        rows = self._rows()
        if is_dense_cheaper:
            self._start_dense(rows)
        else:
            if shares is not None:
                self._row_shares = shares.repeat_interleave(told.n_rows.long())
            self._gathered = ops.grouped_allgather_async(list(rows), f"{self._name}.rows", self._process_set)

    def _rows(self) -> _Rows:
        if self._tensor is None:
            values = torch.empty((0, *self._shape[self._n_sparse_dims :]), dtype=self._dtype, device="cpu")
            return _Rows(torch.empty((0, self._n_sparse_dims), dtype=torch.int64, device="cpu"), values)
        return _Rows(self._tensor.indices().t().contiguous(), self._tensor.values().contiguous())

    def _start_dense(self, rows: _Rows) -> None:
        where = tuple(rows.indices.t())
        dense = torch.zeros(self._shape, dtype=self._dtype, device="cpu")
        dense[where] = rows.values
        # How many have each row: a row of zeros is not a row that is not there. And how many ranks there are.
        places = self._shape[: self._n_sparse_dims]
        present = torch.zeros(places.numel() + 1, dtype=torch.int32, device="cpu")
        present[:-1].view(places)[where] = 1
        present[-1] = 1
        process_set = self._process_set
        self._dense = (
            ops.allreduce_async_(
                dense,
                name=f"{self._name}.dense",
                op=self._op,
                process_set=process_set,
                weight=self._weight,
                divisor="world" if self._divides_by_all else "contributors",
            ),
            ops.allreduce_async_(present, name=f"{self._name}.present", op=Sum, process_set=process_set),
        )

    def poll(self) -> bool:
        """Whether wait() will not block. Never blocks itself."""
        if not self._told.poll():
            return False
        self._advance()
        return all(handle.poll() for handle in self._second_half())

    def _second_half(self) -> list[Handle[Any]]:
        return [handle for handle in (self._gathered, *(self._dense or ())) if handle is not None]

    def wait(self) -> Tensor:
        """Return the result, or raise the reduction's error."""
        return self._result().to(self._device)

    __call__ = wait

    def _result(self) -> Tensor:
        self._advance()
        if self._failure is not None:
            raise self._failure
        if self._gathered is not None:
            return self._add_up(_Rows(*self._gathered.wait()))
        if self._dense is not None:
            return self._pick(*(handle.wait() for handle in self._dense))
        return torch.zeros(self._shape, dtype=self._dtype, layout=torch.sparse_coo, device="cpu").coalesce()

    def _check_that_all_came(self, n: int, n_told: int) -> None:
        if n != n_told:
            raise MismatchError(
                f"sparse allreduce '{self._name}': a rank has joined while it was under way, and its rows are missing; "
                "wait for sparse allreduces before join()"
            )

    def _add_up(self, rows: _Rows) -> Tensor:
        self._check_that_all_came(rows.indices.shape[0], self._n_rows)
        if self._row_shares is not None:
            values = sparse_rows.widened(rows.values)
            shares = self._row_shares.to(values.abs().dtype).reshape([-1] + [1] * (values.ndim - 1))
            return sparse_rows.sum_of(rows.indices, values * shares, self._shape, self._dtype)
        if self._op == Average:
            return sparse_rows.mean_of(rows.indices, rows.values, self._shape, self._n_ranks)
        return sparse_rows.sum_of(rows.indices, rows.values, self._shape, self._dtype)

    def _pick(self, dense: Tensor, present: Tensor) -> Tensor:
        self._check_that_all_came(int(present[-1]), self._n_told)
        indices = present[:-1].view(self._shape[: self._n_sparse_dims]).nonzero().t()
        return sparse_rows.coalesced(indices, dense[tuple(indices)], self._shape)


def sparse_allreduce_async(
    tensor: Tensor,
    name: str | None,
    op: int | None,
    process_set: ProcessSet = global_process_set,
    weight: float | None = None,
    divisor: Divisor = "contributors",
) -> SparseReduction:
    """Start an allreduce of a sparse (COO) tensor.

    Args:
        tensor: sparse, of the same shape, dtype and number of sparse dimensions on every rank; the ranks may have
            different numbers of rows.
        name: identifies the call across ranks.
        op: Average (also for None) or Sum.
        process_set: the ranks that take part.
        weight: this rank's weight, 0 or more, in a weighted average, as for `allreduce()`: a row that a rank does not
            have counts as zeros, with its weight.
        divisor: of an average without weights, as for `allreduce()`.

    Returns:
        A handle: `synchronize(handle)`, `handle.wait()` or `handle()` returns the result, a coalesced sparse tensor.

    The rows of all ranks are gathered and summed; if they would be more bytes than the dense tensor, the dense tensors
    are combined instead, with the same result up to rounding.

    Raises:
        InvalidArgumentError: the tensor is not sparse, `op` is another one, or a weight or the divisor is invalid.
        MismatchError: ranks differ in dtype, shape, number of sparse dimensions, op or divisor, or some give weights
            and others do not.
    """
    _basics.engine()
    if not tensor.is_sparse:
        raise InvalidArgumentError(f"sparse_allreduce_async takes sparse (COO) tensors, not {tensor.layout}")
    return SparseReduction(tensor, tensor, name, Average if op is None else op, process_set, weight, divisor)
