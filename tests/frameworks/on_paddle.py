"""Paddle's tensors of dygraph, for the conformance suite. What its programs do, tests/paddle says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import numpy.random  # before paddle, of which the oldest version needs it so
import paddle
from framework import DTYPES, Array, Framework

import ciranda.paddle
import ciranda.paddle.ops
from ciranda.paddle.tensors import from_engine


class Adapter(Framework):
    package = "paddle"
    # Those of Horovod's names, where an operator has taken it.
    ops = SimpleNamespace(**{**vars(ciranda.paddle), **vars(ciranda.paddle.ops)})
    dtypes = tuple(name for name in DTYPES if name not in ("uint16", "uint32", "uint64"))  # of which Python has none
    has_gradients = True

    def make(self, array: Array) -> paddle.Tensor:
        name = "bfloat16" if array.dtype == ml_dtypes.bfloat16 else array.dtype.name
        return from_engine(np.ascontiguousarray(array), paddle.empty([0], dtype=name)).reshape(list(array.shape))

    def read(self, tensor: paddle.Tensor) -> Array:
        array = tensor.detach().numpy()
        return array.view(ml_dtypes.bfloat16) if tensor.dtype == paddle.bfloat16 else array

    def gradients(
        self,
        function: Callable[[list[paddle.Tensor]], list[paddle.Tensor]],
        inputs: Sequence[Array],
        weigh: Callable[[tuple[int, ...]], Array],
    ) -> list[Array]:
        tensors = [self.make(array) for array in inputs]
        for tensor in tensors:
            tensor.stop_gradient = False
        results = function(tensors)
        paddle.autograd.backward(results, [self.make(weigh(tuple(result.shape))) for result in results])
        return [self.read(tensor.grad) for tensor in tensors if tensor.grad is not None]
