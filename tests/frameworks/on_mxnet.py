"""MXNet's arrays, for the conformance suite: calls that are made together are operations of its engine."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import ciranda.mxnet  # before MXNet, whose warnings it keeps to itself

# isort: split
import ml_dtypes
import mxnet as mx
import numpy as np
from framework import Array, Call, Framework, results_of
from mxnet.base import _LIB

from ciranda.mxnet._plugin import live_calls

BFLOAT16 = np.dtype([("bfloat16", np.uint16)])  # MXNet's

#: Made by blocking calls, which cannot be under way together.
WAITING = ("allgather", "alltoall")


class _Referable(mx.nd.NDArray):  # type: ignore[misc]
    """An array that weak references may refer to, which those of MXNet do not allow."""


def _referable(array: Any) -> _Referable:
    handle = ctypes.c_void_p()
    assert _LIB.MXShallowCopyNDArray(array.handle, ctypes.byref(handle)) == 0
    return _Referable(handle=handle)


class Adapter(Framework):
    package = "mxnet"
    ops = ciranda.mxnet
    dtypes = ("bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64")
    has_gradients = True

    def make(self, array: Array) -> Any:
        with mx.util.np_shape(True):
            if array.dtype == ml_dtypes.bfloat16:
                return _referable(mx.nd.array(array.astype("float32"), dtype="float32").astype(BFLOAT16))
            return _referable(mx.nd.array(array, dtype=array.dtype))

    def read(self, tensor: Any) -> Array:
        with mx.util.np_shape(True):
            if tensor.dtype == BFLOAT16:
                return np.asarray(tensor.asnumpy()).view(ml_dtypes.bfloat16)
            return np.asarray(tensor.asnumpy())

    def gradients(
        self,
        function: Callable[[list[Any]], list[Any]],
        inputs: Sequence[Array],
        weigh: Callable[[tuple[int, ...]], Array],
    ) -> list[Array]:
        tensors = [self.make(array) for array in inputs]
        for tensor in tensors:
            tensor.attach_grad()
        with mx.autograd.record():
            results = function(tensors)
        mx.autograd.backward(results, [self.make(weigh(result.shape)) for result in results])
        return [self.read(tensor.grad) for tensor in tensors]

    def live_calls(self) -> int:
        return live_calls()

    def kind_of(self, error: BaseException) -> str:
        for kind in ("InvalidArgument", "Mismatch", "RanksLost", "Timeout", "Aborted", "Internal"):
            if isinstance(error, getattr(ciranda.errors, f"{kind}Error")):
                return kind
        raise error

    def message_of(self, error: BaseException) -> str:
        found = ciranda.mxnet.as_ciranda_error(error)
        assert found is not None
        return str(found).removeprefix("ciranda.mxnet: ")  # which calls that wait do not say

    def together(self, calls: Sequence[Call]) -> list[list[Any]]:
        """Make the calls: those that wait last, and in the same order on all ranks."""
        found: list[list[Any]] = [[]] * len(calls)
        pushed = [index for index, call in enumerate(calls) if call.function not in WAITING]
        waiting = [index for index, call in enumerate(calls) if call.function in WAITING]
        for index in [*pushed, *sorted(waiting, key=lambda each: calls[each].options["name"])]:
            found[index] = self.started(calls[index])
        for results in found:
            for result in results:
                result.wait_to_read()
        return found

    def blocking(self, call: Call) -> list[Any]:
        results = self.started(call)
        for result in results:
            result.wait_to_read()
        return results

    def started(self, call: Call) -> list[Any]:
        with mx.util.np_shape(True):
            return results_of(getattr(self.ops, self._name(call))(*self._arguments(call), **call.options))
