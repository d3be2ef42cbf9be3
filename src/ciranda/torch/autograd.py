"""How autograd hears of the collectives. What their gradients are, says `ciranda._collectives.rules`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ciranda._collectives import Rule

Tensor = torch.Tensor


class _Call(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rule: Rule[Tensor], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.rule = rule
        results = tuple(rule.forward(tensors))
        if rule.n_constants:
            ctx.mark_non_differentiable(*results[-rule.n_constants :])
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        return None, *ctx.rule.backward(gradients)


class _CallOnce(_Call):
    backward = staticmethod(once_differentiable(_Call.backward))  # type: ignore[assignment]


#: The class of each kind of call: by its name it is known in profiles.
_classes: dict[type, Any] = {}


class Autograd:
    """`ciranda._collectives.Gradients` of torch."""

    @staticmethod
    def needed(tensors: Iterable[Any]) -> bool:
        """Whether autograd has to hear of an operation on these tensors."""
        if torch.is_grad_enabled():
            for tensor in tensors:  # any() takes twice as long for one
                if getattr(tensor, "requires_grad", False):
                    return True
        return False

    @staticmethod
    def record(rule: Rule[Tensor], tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return `rule.forward(tensors)`, whose backward pass is `rule.backward`."""
        kind: Any = _classes.get(type(rule))
        if kind is None:
            base = _Call if rule.is_differentiable_twice else _CallOnce
            kind = _classes[type(rule)] = type(f"_{type(rule).__name__}", (base,), {})
        return list(kind.apply(rule, *tensors))

    @staticmethod
    def kind(tensor: Tensor) -> tuple[torch.dtype, torch.device]:
        """Return what `zeros` needs to make one that is like the tensor but in its shape."""
        return tensor.dtype, tensor.device

    @staticmethod
    def zeros(shape: tuple[int, ...], kind: tuple[torch.dtype, torch.device]) -> Tensor:
        """Return a new tensor of zeros."""
        dtype, device = kind
        return torch.zeros(shape, dtype=dtype, device=device)

    @staticmethod
    def cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the tensor in another dtype."""
        return tensor.to(dtype)
