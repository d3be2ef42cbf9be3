"""TensorFlow's tensors, for the conformance suite: calls that are to be under way together are those of one graph."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # of what fails here, as it should, TensorFlow warns

import numpy as np
import tensorflow as tf
from framework import DTYPES, Array, Call, Framework, results_of

import ciranda.tensorflow
from ciranda.tensorflow import _plugin


class Adapter(Framework):
    package = "tensorflow"
    ops = ciranda.tensorflow
    dtypes = DTYPES
    has_gradients = True

    def make(self, array: Array) -> tf.Tensor:
        return tf.constant(array.astype(tf.bfloat16.as_numpy_dtype) if array.dtype.name == "bfloat16" else array)

    def read(self, tensor: tf.Tensor) -> Array:
        return np.asarray(tensor.numpy())

    def gradients(
        self,
        function: Callable[[list[tf.Tensor]], list[tf.Tensor]],
        inputs: Sequence[Array],
        weigh: Callable[[tuple[int, ...]], Array],
    ) -> list[Array]:
        tensors = [self.make(array) for array in inputs]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            results = function(tensors)
        weights = [self.make(weigh(tuple(result.shape))) for result in results]
        found = tape.gradient(results, tensors, output_gradients=weights)
        return [self.read(each) for each in found if each is not None]

    def compiled(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return tf.function(function)

    def live_calls(self) -> int:
        return _plugin.live_calls()

    def kind_of(self, error: BaseException) -> str:
        found = ciranda.tensorflow.as_ciranda_error(error)
        if found is None:
            raise error
        kind = super().kind_of(found)
        if isinstance(error, tf.errors.OpError):
            assert type(error) is CLASSES.get(kind, tf.errors.AbortedError), error
        return kind

    def message_of(self, error: BaseException) -> str:
        return str(ciranda.tensorflow.as_ciranda_error(error))

    def together(self, calls: Sequence[Call]) -> list[list[Any]]:
        """Make the calls: all that may be in a graph in one, the others by handles."""
        handles = {index: self._start(call) for index, call in enumerate(calls) if call.function in NOT_IN_GRAPHS}
        inside = [call for call in calls if call.function not in NOT_IN_GRAPHS]

        @tf.function(autograph=False)
        def graph(tensors: list[list[tf.Tensor]]) -> list[list[tf.Tensor]]:
            return [self._result(call, given) for call, given in zip(inside, tensors, strict=True)]

        found = iter(graph([self._given(call) for call in inside]))
        return [
            results_of(self.ops.synchronize(handles[index])) if index in handles else next(found)
            for index in range(len(calls))
        ]

    def blocking(self, call: Call) -> list[Any]:
        return self._result(call, self._given(call))

    def _given(self, call: Call) -> list[Any]:
        return [tf.Variable(each) for each in call.tensors] if call.form == "in place" else list(call.tensors)

    def _result(self, call: Call, given: list[Any]) -> list[Any]:
        if call.form == "in place":
            return [each.read_value() for each in self.ops.broadcast_(given, **call.options)]
        arguments = [given] if call.form == "grouped" else given
        return results_of(getattr(self.ops, self._name(call))(*arguments, **call.options))


#: Which one rank gets, or gives.
NOT_IN_GRAPHS = ("reduce", "gather", "scatter")
CLASSES = {
    "InvalidArgument": tf.errors.InvalidArgumentError,
    "Mismatch": tf.errors.FailedPreconditionError,
    "Internal": tf.errors.InternalError,
}
