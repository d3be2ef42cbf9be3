"""Torch tensors, for the conformance suite."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
import torch
from framework import DTYPES, Array, Framework

import ciranda.torch


class Adapter(Framework):
    package = "torch"
    ops = ciranda.torch
    dtypes = tuple(name for name in DTYPES if hasattr(torch, name))
    has_gradients = True

    def make(self, array: Array) -> torch.Tensor:
        if array.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
        return torch.from_numpy(array.copy())

    def read(self, tensor: torch.Tensor) -> Array:
        tensor = tensor.detach()
        if tensor.dtype == torch.bfloat16:
            return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return tensor.numpy()

    def gradients(
        self,
        function: Callable[[list[torch.Tensor]], list[torch.Tensor]],
        inputs: Sequence[Array],
        weigh: Callable[[tuple[int, ...]], Array],
    ) -> list[Array]:
        tensors = [self.make(array).requires_grad_() for array in inputs]
        results = function(tensors)
        torch.autograd.backward(results, [self.make(weigh(tuple(result.shape))) for result in results])
        return [self.read(tensor.grad) for tensor in tensors if tensor.grad is not None]

    def elsewhere(self) -> torch.Tensor:
        return torch.ones(3, device="meta")
