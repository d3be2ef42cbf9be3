"""Kinds of torch tensors whose values are not in memory of their own, and what to give in their place."""

from __future__ import annotations

import sys

import torch

_SPARSE = {getattr(torch, name) for name in ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")}


def explain(tensor: object) -> str | None:
    """Return why `tensor` cannot be communicated, and the way out; None if nothing is known against it."""
    if not isinstance(tensor, torch.Tensor):
        return f"expected a torch tensor, got {type(tensor).__name__}"
    if _is_fake(tensor):
        return (
            "a FakeTensor cannot be communicated: it has a shape, but no values. Make the model outside of "
            "FakeTensorMode, or call the collective there"
        )
    if tensor.is_nested:
        parts = "values() and offsets()" if tensor.layout is not torch.strided else "unbind()"
        return (
            f"a nested tensor cannot be communicated: its rows differ in length. Give what its {parts} return, or "
            "to_padded_tensor()"
        )
    if tensor.is_quantized:
        return (
            f"a quantized tensor of dtype {tensor.dtype} cannot be communicated: dequantize() it, or give its "
            "int_repr(), and its scale and zero point"
        )
    if tensor.layout in _SPARSE:
        return (
            f"a tensor with layout {tensor.layout} cannot be communicated; make it dense first, or use "
            "sparse_allreduce_async()"
        )
    if tensor.layout is not torch.strided:
        return f"a tensor with layout {tensor.layout} cannot be communicated; give what its to_dense() returns"
    if not _has_memory(tensor):
        return (
            f"a {type(tensor).__name__} cannot be communicated: it wraps other tensors, and has no memory of its own. "
            "Give the tensors in it, such as to_local() of a DTensor"
        )
    return None


def _is_fake(tensor: torch.Tensor) -> bool:
    module = sys.modules.get("torch._subclasses.fake_tensor")  # without which there is none
    return module is not None and isinstance(tensor, module.FakeTensor)


def _has_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor on the CPU has memory; those elsewhere have errors of their own."""
    try:
        return tensor.device.type != "cpu" or tensor.numel() == 0 or tensor.data_ptr() != 0
    except RuntimeError:
        return False
