"""Collectives in programs that XLA compiles (`jit_compile=True`), where there are no ops: as custom calls, which block.

XLA runs calls that do not depend on each other in any order, or one at a time. So each call of a graph depends on the
one that was traced before it, by a token; all ranks must trace them in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.ops import control_flow_util

from ciranda import _core
from ciranda._ops import ALLREDUCE, BARRIER, BROADCAST
from ciranda.errors import NotSupportedError
from ciranda.tensorflow import _plugin

Tensor = Any
Gradient = Callable[..., list[Tensor]]

#: The collectives whose results have shapes that are known when a program is compiled.
_COLLECTIVES = {"CirandaAllreduce": ALLREDUCE, "CirandaBroadcast": BROADCAST, "CirandaBarrier": BARRIER}
_TOKEN = "_ciranda_token"


class Node(NamedTuple):
    """A call as a gradient function reads it: the used attributes of an op."""

    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    attributes: dict[str, Any]

    def get_attr(self, name: str) -> Any:
        """Return an attribute of the op."""
        return self.attributes[name]


def is_compiling() -> bool:
    """Whether XLA will compile the graph that is being traced."""
    graph = tf.compat.v1.get_default_graph()
    return bool(control_flow_util.GraphOrParentsInXlaContext(graph))


def run(op_type: str, tensors: Sequence[Tensor], attributes: dict[str, Any], gradient: Gradient | None) -> list[Tensor]:
    """Return the outputs of a collective, as a custom call of XLA."""
    collective = _COLLECTIVES.get(op_type)
    if collective is None:
        kind = op_type.removeprefix("Ciranda").lower()
        raise NotSupportedError(
            f"{kind} cannot be compiled (jit_compile=True): the shape of its result is not known before it runs; call "
            "it outside of the compiled function"
        )
    description = _description(collective, tensors, attributes)

    def call(*inputs: Tensor) -> tuple[list[Tensor], Gradient]:
        outputs = _emit("ciranda_collective", description, inputs, tensors)

        def backward(*gradients: Tensor) -> list[Tensor]:
            assert gradient is not None
            return gradient(Node(inputs, outputs, attributes), *gradients)

        return outputs, backward

    if not tensors:
        return call()[0]
    return list(tf.custom_gradient(call)(*tensors))


def place(number: int, process_set: int) -> Tensor:
    """Return one of `places`, as a custom call of XLA."""
    return _emit("ciranda_place", f"{number} {process_set} ", (), [tf.zeros([], tf.int32)])[0]


def look(name: str, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Add a look (`ciranda._frameworks.looks`) at the tensors, as a custom call of XLA. Return what depends on it."""
    return _emit("ciranda_look", f"{len(tensors)} {name}", tensors, [tf.zeros([], tf.int32)])


def _description(collective: int, tensors: Sequence[Tensor], attributes: dict[str, Any]) -> str:
    """Return the text of the call that cpp/bindings/tensorflow/xla.cc reads."""
    numbers = [
        collective,
        attributes["reduce_op"],
        attributes["root_rank"],
        attributes["prescale_factor"],
        attributes["postscale_factor"],
        attributes["process_set"] % (1 << 64),
        attributes["flags"],
        len(tensors),
    ]
    for tensor in tensors:
        if not tensor.shape.is_fully_defined():
            raise NotSupportedError(
                f"a tensor of shape {tensor.shape}, whose dimensions are not all known when it is traced, cannot be "
                f"communicated in a compiled function (jit_compile=True): {tensor.name}"
            )
        numbers += [_core.DATA_TYPES[tensor.dtype.name], len(tensor.shape), *tensor.shape.as_list()]
    return "".join(f"{number} " for number in numbers) + str(attributes["tensor_name"])


def _emit(target: str, description: str, inputs: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
    problem = _plugin.xla_problem()
    if problem:
        raise NotSupportedError(f"collectives cannot be compiled (jit_compile=True) here: {problem}")
    graph = tf.compat.v1.get_default_graph()
    token = getattr(graph, _TOKEN, None)
    results = gen_xla_ops.xla_custom_call_v2(
        operands=[tf.zeros([], tf.int32) if token is None else token, *inputs],
        call_target_name=target,
        backend_config=description,
        has_side_effect=True,
        result_dtypes=[tf.int32, *(tensor.dtype for tensor in like)],
        result_shapes=[tf.TensorShape([]), *(tensor.shape for tensor in like)],
    )
    setattr(graph, _TOKEN, results[0])
    return list(results[1:])
