"""Sums of sparse (COO) tensors: the rows of all ranks are gathered, and each rank adds them up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ciranda import _core
from ciranda._ops import Average, Sum
from ciranda.errors import MismatchError, NotSupportedError
from ciranda.torch import sparse_rows
from ciranda.torch.kinds import explain
from ciranda.torch.tensors import contiguous

Tensor = torch.Tensor


def parts_of(tensor: Tensor, op: int) -> list[Tensor]:
    """Return the parts of a sparse tensor to gather: an index a row, a value a row, and its shape."""
    if tensor.layout is not torch.sparse_coo:
        raise NotSupportedError(
            f"all_reduce() of a tensor with layout {tensor.layout}; dense and COO tensors are supported: "
            f"{explain(tensor)}"
        )
    if op not in (Sum, Average):
        raise NotSupportedError("all_reduce() of sparse tensors sums or averages; for other operations make them dense")
    whole = tensor.detach().coalesce()
    shape = torch.tensor([tensor.shape], dtype=torch.int64, device="cpu")
    return [contiguous(whole.indices().t()), contiguous(whole.values()), shape]


def delivery(tensor: Tensor, op: int, ranks: Sequence[int]) -> Callable[[_core.Operation], None]:
    """Return the function that adds up the gathered parts, in rank order, into `tensor`."""

    def finish(done: _core.Operation) -> None:
        indices, values, shapes = (torch.as_tensor(each, device="cpu") for each in done.outputs())
        here = list(tensor.shape)
        for rank, shape in zip(ranks, shapes.tolist(), strict=True):
            if shape != here:
                raise MismatchError(f"ranks disagree about a sparse shape: {here} here, {shape} on rank {rank}")
        if op == Average:
            result = sparse_rows.mean_of(indices, values, here, len(ranks))
        else:
            result = sparse_rows.sum_of(indices, values, here, tensor.dtype)
        with torch.no_grad():
            tensor.copy_(result)  # a detached one has indices of its own

    return finish
