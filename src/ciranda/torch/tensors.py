"""From torch tensors to what the engine takes, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from operator import attrgetter, is_
from typing import Any

import torch

from ciranda import _core
from ciranda._basics import engine
from ciranda._collectives import Adapter, CompressedCollectives
from ciranda._frameworks.parameters import Contents
from ciranda._spans import Sink, recorded_in
from ciranda.errors import InvalidArgumentError
from ciranda.torch.autograd import Autograd
from ciranda.torch.kinds import explain
from ciranda.torch.moved import CARRIERS, carried, delivered
from ciranda.torch.spans import make_span

#: Whether this torch hands over tensors by DLPack's C exchange table (2.10 and newer do). Otherwise by address.
HAS_EXCHANGE_TABLE = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")

_NUMBER_OF = {getattr(torch, name): number for name, number in _core.DATA_TYPES.items() if hasattr(torch, name)}

#: How many rows go to each rank.
Splits = torch.Tensor | Sequence[int]

_Tensor = torch.Tensor
_strided = torch.strided

# Tells autograd that a tensor was written to; absent from the oldest versions of torch.
_increment_version = getattr(torch.autograd.graph, "increment_version", None)


def _increments_many() -> bool:
    with torch.inference_mode():
        without_version = torch.empty(0, device="cpu")
    try:
        _increment_version([torch.empty(0, device="cpu"), without_version])  # type: ignore[misc]
    except (RuntimeError, TypeError):  # older versions of torch take one tensor, which has a version
        return False
    return True


#: Whether it takes several tensors, and those without a version too.
_INCREMENTS_MANY = _increments_many()
_layout_of = attrgetter("layout")
_dtype_of = attrgetter("dtype")
_is_nested = attrgetter("is_nested")

#: Of the tensors that are nothing but memory; others are looked at.
_PLAIN_TYPES = {_Tensor, torch.nn.Parameter}
#: What is neither is no type of numbers.
_DTYPES = {*_NUMBER_OF, *CARRIERS}


def number_of(dtype: torch.dtype) -> int:
    """Return the engine's number of a dtype."""
    number = _NUMBER_OF.get(dtype)
    if number is None:
        known = ", ".join(_core.DATA_TYPES)
        raise InvalidArgumentError(f"a tensor of dtype {dtype} cannot be combined; supported: {known}; cast it")
    return number


class _Cuda:
    """`ciranda._cuda_arrays.Library` of torch."""

    def current_stream(self, gpu: int) -> int:
        return torch.cuda.current_stream(gpu).cuda_stream

    def from_dlpack(self, array: Any) -> torch.Tensor:
        return torch.utils.dlpack.from_dlpack(array)


_CUDA = _Cuda()


def describe(tensor: torch.Tensor) -> _core.TensorDescription:
    """Return the contiguous `tensor` by address, for versions of torch without the exchange table."""
    what = (tensor.data_ptr(), tuple(tensor.shape), number_of(tensor.dtype), tensor)
    if tensor.device.type == "cpu":
        return _core.TensorDescription(*what)
    if tensor.device.type == "cuda" and torch.version.hip is None:
        return _core.TensorDescription(*what, _CUDA, tensor.device.index)
    raise InvalidArgumentError(
        f"the tensor is on device {tensor.device}, which Ciranda has no access to; copy it to CPU memory first"
    )


def for_engine(tensor: torch.Tensor) -> torch.Tensor | _core.TensorDescription:
    """Return what the engine can read: the contiguous tensor itself, or a description of it."""
    return tensor if HAS_EXCHANGE_TABLE else describe(tensor)


def for_moving(tensor: torch.Tensor) -> torch.Tensor | _core.TensorDescription:
    """`for_engine()` of a tensor that is moved without a look at its values: of more types."""
    return for_engine(carried(tensor) if tensor.dtype in CARRIERS else tensor)


def check_kind(tensor: torch.Tensor) -> None:
    """Raise InvalidArgumentError if the values of `tensor` are not in memory of its own, and say what to do."""
    is_usual = type(tensor) in _PLAIN_TYPES and tensor.layout is _strided and tensor.dtype in _DTYPES
    if not is_usual or tensor.is_nested:
        why = explain(tensor)
        if why is not None:
            raise InvalidArgumentError(why)


def contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """Return `tensor` if it is contiguous, else a contiguous copy.

    Raises:
        InvalidArgumentError: as of `check_kind()`.
    """
    check_kind(tensor)
    if tensor.is_conj() or tensor.is_neg():  # flags of a view; the memory holds something else
        tensor = tensor.detach().resolve_conj().resolve_neg()
    return tensor if tensor.is_contiguous() else tensor.detach().contiguous()


def is_trained(parameter: torch.Tensor) -> bool:
    """Whether it can have a gradient: it is not frozen, nor a lazy module's that the first forward pass will make."""
    return parameter.requires_grad and not torch.nn.parameter.is_lazy(parameter)


def comparable(tensor: torch.Tensor) -> Contents | None:
    """Return what ranks compare of a parameter: see `ciranda._frameworks.parameters.Describe`."""
    if torch.nn.parameter.is_lazy(tensor):
        return None
    value = tensor.detach()
    kind = f"{value.dtype} {list(value.shape)}"
    if type(value) is not _Tensor or value.layout is not _strided or value.is_quantized or value.is_meta:
        value = torch.empty(0, device="cpu")  # whose contents have a form of their own
    return Contents(kind, for_engine(contiguous(value.cpu()).reshape(-1).view(torch.uint8)))  # bytes, of any dtype


def all_contiguous(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return `contiguous()` of each. Where all are, that is seen without a call in Python for each."""
    work = list(tensors)
    try:
        is_any_other = (
            not (_PLAIN_TYPES.issuperset(map(type, work)) and _DTYPES.issuperset(map(_dtype_of, work)))
            or any(layout is not _strided for layout in set(map(_layout_of, work)))
            or any(map(_is_nested, work))
            or not all(map(_Tensor.is_contiguous, work))
            or any(map(_Tensor.is_conj, work))
            or any(map(_Tensor.is_neg, work))
        )
    except (AttributeError, TypeError, RuntimeError):  # contiguous() says what is wrong
        is_any_other = True
    return [contiguous(tensor) for tensor in work] if is_any_other else work


def all_for_engine(tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor | _core.TensorDescription]:
    """`for_engine()` of several tensors."""
    return tensors if HAS_EXCHANGE_TABLE else [describe(tensor) for tensor in tensors]


def all_for_moving(tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor | _core.TensorDescription]:
    """`for_moving()` of several tensors."""
    are_numbers = CARRIERS.keys().isdisjoint(map(_dtype_of, tensors))
    return all_for_engine(tensors) if are_numbers else [for_moving(tensor) for tensor in tensors]


def empty_like(tensor: torch.Tensor) -> torch.Tensor:
    """Return a new tensor for the result of an operation on the contiguous `tensor`."""
    return torch.empty_like(tensor, requires_grad=False)


def strides_like(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the strides of what torch makes like `tensor`, such as a gradient or a momentum: no gaps, its order."""
    return torch.empty_like(tensor, device="meta").stride()


def laid_out_like(like: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return `tensor` with the strides of what torch makes like `like`, of the same shape: itself, or a copy.

    Fused optimizers walk through a parameter, its gradient and its state as they lie in memory, without a look at their
    strides: where these differ, they combine elements that do not belong together.
    """
    if like.is_contiguous() and tensor.is_contiguous():
        return tensor
    strides = strides_like(like)
    if tensor.stride() == strides:
        return tensor
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def bring_back(work: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Copy the result into the caller's tensor, if the engine worked on a copy. Returns the caller's tensor."""
    if work is not tensor:
        with torch.no_grad():
            tensor.copy_(work)
    elif _INCREMENTS_MANY or (_increment_version is not None and not tensor.is_inference()):
        _increment_version(tensor)  # type: ignore[misc]
    return tensor


def bring_all_back(work: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """`bring_back()` of several tensors."""
    if _INCREMENTS_MANY and all(map(is_, work, tensors)):
        _increment_version(tensors)  # type: ignore[misc]
        return list(tensors)
    return [bring_back(*pair) for pair in zip(work, tensors, strict=True)]


def allocate_shared(n_bytes: int) -> tuple[torch.Tensor, bool]:
    """Return zeroed bytes that the engine combines where they lie, and whether it does. All ranks must call it."""
    like = torch.empty(0, dtype=torch.uint8, device="cpu")
    memory, is_shared = engine().allocate_shared(n_bytes, for_engine(like))
    return like_input(memory, like), is_shared


def like_input(output: Any, tensor: torch.Tensor) -> torch.Tensor:
    """Return an array that the engine allocated as a torch tensor of its input's dtype, without a copy."""
    if isinstance(output, torch.Tensor):
        result = output
    else:  # NumPy has two types for integers of 64 bits, and torch knows one of them; older versions no unsigned ones
        result = torch.from_numpy(output.view(output.dtype.str.replace("u", "i")))
    if result.dtype == tensor.dtype:
        return result
    return delivered(result, tensor.dtype) if tensor.dtype in CARRIERS else result.view(tensor.dtype)


def _share_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    begin, end = one.data_ptr(), one.data_ptr() + one.nbytes
    return begin < other.data_ptr() + other.nbytes and other.data_ptr() < end


def _counts(numbers: Any, splits: Splits | None) -> torch.Tensor:
    counts = torch.as_tensor(numbers, device="cpu")
    if splits is None:
        return counts
    return counts.to(splits.dtype if isinstance(splits, torch.Tensor) else torch.int32)


ADAPTER: Adapter[torch.Tensor, torch.Tensor, Splits] = Adapter(
    module="ciranda.torch.ops",
    types={"Given": "Tensor", "Tensor": "Tensor", "Splits": "Splits"},
    namespace={"Tensor": torch.Tensor, "Splits": Splits},
    readable=contiguous,
    writable=contiguous,
    for_engine=for_engine,
    for_moving=for_moving,
    like=empty_like,
    bring_back=bring_back,
    from_engine=like_input,
    share_memory=_share_memory,
    splits=partial(torch.as_tensor, device="cpu"),
    counts=_counts,
    gradients=Autograd(),
    laid_out_like=laid_out_like,
    all_readable=all_contiguous,
    all_for_engine=all_for_engine,
    all_for_moving=all_for_moving,
    all_brought_back=bring_all_back,
)
collectives = CompressedCollectives(ADAPTER)

recorded_in(Sink(torch.autograd.profiler, make_span))
