"""Conversion of Paddle's tensors of dygraph to the engine's, and back."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import paddle

from ciranda import _core
from ciranda._collectives import Adapter, CompressedCollectives
from ciranda.errors import InvalidArgumentError
from ciranda.paddle.autograd import Autograd

Tensor: TypeAlias = paddle.Tensor
#: The number of rows for each rank.
Splits = Any

_NUMBER_OF = {str(getattr(paddle, name)): number for name, number in _core.DATA_TYPES.items() if hasattr(paddle, name)}
_FLAGS = paddle.base.core.globals()


def is_tensor(value: Any) -> bool:
    """Whether this is a tensor of dygraph, not one of a program."""
    return isinstance(value, paddle.base.core.eager.Tensor)


def number_of(tensor: Tensor) -> int:
    """Return the engine's number of the tensor's dtype."""
    number = _NUMBER_OF.get(str(tensor.dtype))
    if number is None:
        known = ", ".join(_core.DATA_TYPES)
        raise InvalidArgumentError(f"a tensor of dtype {tensor.dtype} cannot be communicated; supported: {known}")
    return number


def readable(tensor: Tensor) -> Tensor:
    """Return `in_memory(tensor)`, for calls that make new tensors. Raises InvalidArgumentError in static mode."""
    if is_tensor(tensor) and not paddle.in_dynamic_mode():
        raise InvalidArgumentError(
            "the tensor is one of dygraph, but Paddle is in static mode, where no new one can be made: call "
            "paddle.disable_static() before, or use the form in place; ciranda.paddle.operators takes a program's"
        )
    return in_memory(tensor)


def in_memory(tensor: Tensor) -> Tensor:
    """Return `tensor` if it is contiguous and in CPU memory, else a contiguous copy."""
    if not is_tensor(tensor):
        raise InvalidArgumentError(f"expected a tensor of Paddle's dygraph, got {type(tensor).__name__}")
    if not tensor.place.is_cpu_place():
        raise InvalidArgumentError(f"the tensor is on {tensor.place}, but only tensors in CPU memory are supported")
    if tensor.is_selected_rows() or tensor.is_sparse():
        raise InvalidArgumentError("a sparse tensor cannot be communicated; make it dense first")
    return tensor if tensor.is_contiguous() else tensor.detach().contiguous()


def for_engine(tensor: Tensor) -> _core.TensorDescription:
    """Return a description by address, which keeps the tensor alive."""
    address = tensor.data_ptr() if math.prod(tensor.shape) else 0
    return _core.TensorDescription(address, tuple(tensor.shape), number_of(tensor), tensor)


def new(shape: Sequence[int], like: Tensor) -> Tensor:
    """Return a new tensor of this shape, of the dtype and in the place of `like`."""
    if _FLAGS["FLAGS_check_nan_inf"]:  # what is in new memory may be NaN
        return paddle._C_ops.full(list(shape), 0.0, like.dtype, like.place)
    return paddle._C_ops.empty(list(shape), like.dtype, like.place)


def from_engine(output: np.ndarray[Any, Any], tensor: Tensor) -> Tensor:
    """Return the engine's output as a tensor of the dtype of its input."""
    result = new(output.shape, tensor)
    if output.nbytes:
        ctypes.memmove(result.data_ptr(), output.ctypes.data, output.nbytes)
    return result


def bring_back(work: Tensor, tensor: Tensor) -> Tensor:
    """Copy the result into the caller's tensor, if the engine worked on a copy. Returns the caller's tensor."""
    if work is not tensor:
        with paddle.no_grad():
            paddle.assign(work, tensor)
    else:
        tensor._bump_inplace_version()
    return tensor


def _n_bytes(tensor: Tensor) -> int:
    return int(math.prod(tensor.shape)) * int(tensor.element_size())


def _share_memory(one: Tensor, other: Tensor) -> bool:
    if not _n_bytes(one) or not _n_bytes(other):
        return False
    begin, end = one.data_ptr(), one.data_ptr() + _n_bytes(one)
    return bool(begin < other.data_ptr() + _n_bytes(other) and other.data_ptr() < end)


def _counts(numbers: Any, splits: Splits | None) -> Tensor:
    wanted: Any = getattr(splits, "dtype", None) if is_tensor(splits) else paddle.int32
    return paddle.to_tensor(np.array(numbers), place=paddle.CPUPlace()).astype(wanted)


ADAPTER: Adapter[Tensor, Tensor, Splits] = Adapter(
    module="ciranda.paddle.ops",
    types={"Given": "Tensor", "Tensor": "Tensor", "Splits": "Splits"},
    namespace={"Tensor": Tensor, "Splits": Splits},
    readable=readable,
    writable=in_memory,
    for_engine=for_engine,
    like=lambda tensor: new(tensor.shape, tensor),
    bring_back=bring_back,
    from_engine=from_engine,
    share_memory=_share_memory,
    splits=np.asarray,
    counts=_counts,
    gradients=Autograd(),
)
collectives = CompressedCollectives(ADAPTER)
