"""Tensors of types that the engine cannot reduce, and that it moves as bytes: float8, float4, complex32."""

from __future__ import annotations

import torch

#: The types, and what carries their bytes. The order is the same in all versions of torch.
_NAMES = {
    "float8_e4m3fn": torch.uint8,
    "float8_e5m2": torch.uint8,
    "float8_e4m3fnuz": torch.uint8,
    "float8_e5m2fnuz": torch.uint8,
    "float8_e8m0fnu": torch.uint8,
    "float4_e2m1fn_x2": torch.uint8,
    "complex32": torch.int32,
}
CARRIERS = {getattr(torch, name): carrier for name, carrier in _NAMES.items() if hasattr(torch, name)}
# Each type has its own number of dimensions of one element behind the others, so that ranks that give different types
# get the MismatchError of different shapes.
_MARKS = {getattr(torch, name): (1,) * place for place, name in enumerate(_NAMES, 1) if hasattr(torch, name)}


def carried(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view of the contiguous `tensor`, of a type in `CARRIERS`, which the engine can move."""
    return tensor.detach().view(CARRIERS[tensor.dtype]).view(*tensor.shape, *_MARKS[tensor.dtype])


def delivered(result: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a moved view, or the rows of several, as what it carries: a contiguous tensor of `dtype`."""
    return result.view(dtype).view(result.shape[: result.dim() - len(_MARKS[dtype])])
