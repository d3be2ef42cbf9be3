"""JAX arrays, for the conformance suite: calls that are made together are in part in one compiled program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from framework import Array, Call, Framework, results_of

import ciranda.jax
from ciranda.jax._plugin import live_calls

jax.config.update("jax_enable_x64", True)

#: How the status of a program that fails begins, and the kind of failure.
KINDS = {
    "INVALID_ARGUMENT": "InvalidArgument",
    "FAILED_PRECONDITION": "Mismatch",
    "UNAVAILABLE": "RanksLost",
    "DEADLINE_EXCEEDED": "Timeout",
    "ABORTED": "Aborted",
}


def _may_be_compiled(call: Call) -> bool:
    """Whether all shapes are known beforehand. Ranks may differ in the rows that they bring to an allgather.

    XLA puts tensors without elements at the same place, and calls on them one after the other.
    """
    if any(tensor.size == 0 for tensor in call.tensors):
        return False
    return call.function in ("allreduce", "reducescatter", "broadcast", "alltoall") and "splits" not in call.options


class Adapter(Framework):
    package = "jax"
    ops = ciranda.jax
    has_gradients = True

    def make(self, array: Array) -> jax.Array:
        return jnp.array(array)

    def read(self, tensor: jax.Array) -> Array:
        return np.asarray(tensor)

    def gradients(
        self,
        function: Callable[[list[Any]], list[Any]],
        inputs: Sequence[Array],
        weigh: Callable[[tuple[int, ...]], Array],
    ) -> list[Array]:
        results, pull_back = jax.vjp(function, [self.make(array) for array in inputs])
        (found,) = pull_back([self.make(weigh(result.shape)) for result in results])
        return [self.read(gradient) for gradient in found]

    def compiled(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        # The shape of what is gathered depends on the number of ranks.
        program = jax.jit(lambda tensor, _size: function(tensor), static_argnums=1)
        return lambda tensor: program(tensor, ciranda.jax.size())

    def live_calls(self) -> int:
        return live_calls()

    def kind_of(self, error: BaseException) -> str:
        if isinstance(error, jax.errors.JaxRuntimeError):
            return KINDS[str(error).split(":")[0]]
        return super().kind_of(error)

    def together(self, calls: Sequence[Call]) -> list[list[Any]]:
        """Make the calls: every second of those that may be in a compiled program is in one, the others by handles."""
        inside = [index for index, call in enumerate(calls) if _may_be_compiled(call)][ciranda.rank() % 2 :: 2]
        handles = {index: self._start(call) for index, call in enumerate(calls) if index not in inside}
        found: list[list[Any]] = [[]] * len(calls)
        for index, results in zip(inside, _in_one_program([calls[index] for index in inside]), strict=True):
            found[index] = results
        for index, handle in handles.items():
            found[index] = results_of(self.ops.synchronize(handle))
        return found

    def _start(self, call: Call) -> Any:
        start = getattr(self.ops, f"{self._name(call)}_async")
        return start(*self._arguments(call), **call.options)


def _in_one_program(calls: Sequence[Call]) -> list[list[Any]]:
    adapter = Adapter()

    @jax.jit
    def program(tensors: list[list[Any]]) -> list[list[Any]]:
        return [
            adapter.blocking(Call(call.function, call.form, mine, call.options))
            for call, mine in zip(calls, tensors, strict=True)
        ]

    return jax.block_until_ready(program([list(call.tensors) for call in calls])) if calls else []
