"""Registers the collectives with Paddle's autograd. Their gradients are in `ciranda._collectives.rules`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import paddle
from paddle.autograd import PyLayer

from ciranda._collectives import Rule

Tensor: TypeAlias = paddle.Tensor


class _Call(PyLayer):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, rule: Rule[Tensor], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.rule = rule
        ctx.are_needed = [not tensor.stop_gradient for tensor in tensors]
        results = tuple(rule.forward(tensors))
        if rule.n_constants:
            ctx.mark_non_differentiable(*results[-rule.n_constants :])
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        found = ctx.rule.backward(gradients)
        wanted = [gradient if needed else None for gradient, needed in zip(found, ctx.are_needed, strict=True)]
        return wanted[0] if len(wanted) == 1 else tuple(wanted)


class Autograd:
    """`ciranda._collectives.Gradients` of Paddle."""

    @staticmethod
    def needed(tensors: Sequence[Any]) -> bool:
        """Whether autograd must record an operation on these tensors."""
        return paddle.is_grad_enabled() and any(not getattr(tensor, "stop_gradient", True) for tensor in tensors)

    @staticmethod
    def record(rule: Rule[Tensor], tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return `rule.forward(tensors)`, whose backward pass is `rule.backward`."""
        return list(_Call.apply(rule, *tensors))

    @staticmethod
    def kind(tensor: Tensor) -> Any:
        """Return the dtype."""
        return tensor.dtype

    @staticmethod
    def zeros(shape: tuple[int, ...], kind: Any) -> Tensor:
        """Return a new tensor of zeros."""
        return paddle.zeros(list(shape), dtype=kind)

    @staticmethod
    def cast(tensor: Tensor, dtype: Any) -> Tensor:
        """Return the tensor in another dtype."""
        return tensor.astype(dtype)
