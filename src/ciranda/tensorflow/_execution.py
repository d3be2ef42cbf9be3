"""Calls of the ops: at once, or as nodes of a graph."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.eager import context, execute
from tensorflow.python.framework import op_def_library
from tensorflow.python.profiler import trace

from ciranda import _basics
from ciranda._frameworks import trace_me
from ciranda._ops import Divisor, divides_by_all
from ciranda._spans import call_attributes, profiler, recorded_in, span
from ciranda.errors import InvalidArgumentError
from ciranda.process_sets import ProcessSet, global_process_set, id_of
from ciranda.tensorflow import _plugin, _xla  # noqa: F401 (registers the ops)
from ciranda.tensorflow._loops import iterations_at_once

Tensor = Any

#: The gradient functions by op name; see `gradients`.
GRADIENTS: dict[str, _xla.Gradient] = {}

_DIVIDE_BY_ALL = 4  # CIRANDA_REQUEST_DIVIDE_BY_ALL
_NOT_IN_NAMES_OF_NODES = re.compile(r"[^A-Za-z0-9_.\\/-]")


class Call(NamedTuple):
    """The parameters of a collective, without its tensors."""

    name: str | None = None
    op: int = 1
    root_rank: int = -1
    prescale: float = 1.0
    postscale: float = 1.0
    process_set: ProcessSet = global_process_set
    divisor: Divisor = "contributors"
    ignore_name_scope: bool = False


class _Names(NamedTuple):
    """The attributes `tensor_name` and `node_name`, and the requested name of the node."""

    tensor: str
    node: str
    wanted: str | None


def is_building_graph() -> bool:
    """Whether calls become nodes of a graph."""
    return not context.executing_eagerly()


def is_building_session_graph() -> bool:
    """Whether calls become nodes of a graph for a session of TensorFlow 1, which runs only requested nodes."""
    return is_building_graph() and not tf.compat.v1.get_default_graph().building_function


def run(op_type: str, tensors: Sequence[Tensor], call: Call, splits: Sequence[Tensor] = ()) -> list[Tensor]:
    """Return the outputs of an op."""
    names = _names_in_graph(op_type, tensors, call) if is_building_graph() else _names_at_once(call)
    attributes = _attributes(names, _numbers(call))
    if is_building_graph():
        if _xla.is_compiling():
            return _xla.run(op_type, tensors, attributes, GRADIENTS.get(op_type))
        attributes["iterations"] = iterations_at_once()
    if splits:
        attributes |= {"N": len(splits), "S": splits[0].dtype.as_datatype_enum}
    if tensors:
        attributes["T"] = tuple(tensor.dtype.as_datatype_enum for tensor in tensors)
    inputs = {name: list(value) for name, value in (("tensors", tensors), ("splits", splits)) if value}
    n_outputs = len(tensors) + len(splits) or int(op_type == "CirandaJoin")
    return perform(op_type, inputs, attributes, n_outputs, names.wanted)


def perform(
    op_type: str, inputs: dict[str, list[Tensor]], attributes: dict[str, Any], n_outputs: int, name: str | None
) -> list[Tensor]:
    """Return the outputs of any op, and record it on tapes."""
    attrs = tuple(part for pair in attributes.items() for part in pair)
    flat = [tensor for each in inputs.values() for tensor in each]
    if not is_building_graph():
        with _recorded(op_type, inputs, attributes) if profiler.switch._is_profiler_enabled else nullcontext():
            outputs = execute.execute(
                op_type.encode(), n_outputs, inputs=flat, attrs=attrs, ctx=context.context(), name=name
            )
    else:
        # TensorFlow infers these from the inputs.
        told = {key: value for key, value in attributes.items() if key not in ("T", "N", "S")}
        _, _, node, outputs = op_def_library._apply_op_helper(op_type, name=name, **inputs, **told)
        flat, outputs = list(node.inputs), list(node.outputs)
    if outputs and execute.must_record_gradient():
        execute.record_gradient(op_type, flat, attrs, outputs)
    return list(outputs or [])


def _recorded(op_type: str, inputs: dict[str, list[Tensor]], attributes: dict[str, Any]) -> AbstractContextManager[Any]:
    """Return the span of an op that is executed at once."""
    name = op_type.removeprefix("Ciranda").lower()
    told = call_attributes(_basics.engine(), attributes.get("tensor_name"), attributes.get("process_set", 0))
    return span(name, inputs.get("tensors"), told)


def _numbers(call: Call) -> dict[str, Any]:
    number = id_of(call.process_set)
    return {
        "reduce_op": int(call.op),
        "root_rank": int(call.root_rank),
        "prescale_factor": repr(float(call.prescale)),
        "postscale_factor": repr(float(call.postscale)),
        "process_set": number - (1 << 64) if number >> 63 else number,
        "flags": _DIVIDE_BY_ALL if divides_by_all(call.divisor, call.op) else 0,
    }


def _attributes(names: _Names, numbers: dict[str, Any]) -> dict[str, Any]:
    return {"tensor_name": names.tensor, "node_name": names.node, **numbers}


def _checked(name: str | None) -> str | None:
    if name is not None and not isinstance(name, str):
        raise InvalidArgumentError(f"a name must be a string, not {type(name).__name__}")
    if name == "":
        raise InvalidArgumentError("a name must not be empty; leave it out to have the call named")
    return name


def _names_at_once(call: Call) -> _Names:
    return _Names(_checked(call.name) or "", "", None)


def _names_in_graph(op_type: str, tensors: Sequence[Tensor], call: Call) -> _Names:
    """Return names that are unique in the graph, which runs its calls in any order: they cannot be numbered."""
    name = _checked(call.name) or _name_after(op_type, tensors)
    node = as_node_name(name)
    if call.ignore_name_scope:
        return _Names(name, "", node)
    graph = tf.compat.v1.get_default_graph()
    scope = graph.get_name_scope()
    prefix = f"{scope}/" if scope else ""
    unique = graph.unique_name(node, mark_as_used=False)
    return _Names(prefix + name + unique[len(prefix) + len(node) :], unique, node)


def _name_after(op_type: str, tensors: Sequence[Tensor]) -> str:
    kind = op_type.removeprefix("Ciranda").lower()
    return f"{kind}_{as_node_name(tensors[0].name)}" if tensors else kind


def as_node_name(name: str) -> str:
    """Return a name that TensorFlow accepts for a node."""
    accepted = _NOT_IN_NAMES_OF_NODES.sub("_", name).rstrip("/")
    return accepted if re.match(r"[A-Za-z0-9.]", accepted) else f".{accepted}"


# A variable in older versions.
_is_recording = trace.enabled if callable(trace.enabled) else lambda: bool(trace.enabled)
recorded_in(trace_me.sink(tf.profiler.experimental.Trace, _is_recording))
