"""The two forms of Paddle's programs, the old IR and PIR: the names of their operators, and how one is added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import paddle
from paddle.base.layer_helper import LayerHelper

from ciranda.errors import InvalidArgumentError
from ciranda.paddle import _py_func, _py_op
from ciranda.paddle._plugin import Build, load

#: Paddle's executor keeps the order of operators whose names begin with c_, and which have an attribute ring_id.
PREFIX = "c_ciranda_"
PIR_PREFIX = "custom_op."
#: The suffix of inputs and outputs that are lists.
_LIST = "@VECTOR"

_VALUES = (paddle.static.Variable, *([paddle.pir.Value] if hasattr(paddle, "pir") else []))
_HAS_PIR = hasattr(paddle.framework, "in_pir_mode")


def is_old(program: Any) -> bool:
    """Whether a program is one of the old IR."""
    return isinstance(program, paddle.base.framework.Program)


def in_pir() -> bool:
    """Whether a program of PIR is being written."""
    return bool(_HAS_PIR and paddle.framework.in_pir_mode())


def is_value(value: Any) -> bool:
    """Whether this is a tensor of a program, of either IR."""
    # Tensors of dygraph are instances of Variable, too.
    return isinstance(value, _VALUES) and not isinstance(value, paddle.base.core.eager.Tensor)


def type_of(op: Any) -> str:
    """Return Paddle's name of an operator's type, in either IR."""
    return str(op.type if hasattr(op, "type") else op.name())


def kind_of(op: Any) -> str | None:
    """Return the collective that an operator of either IR is, as "allreduce_sum"; None for others."""
    if type_of(op) == _py_func.TYPE:
        return _py_func.kind_of(op)
    if _py_op.is_one(op):
        return _py_op.kind_of(op)
    name = type_of(op).removeprefix(PIR_PREFIX).removesuffix("_")
    return name.removeprefix(PREFIX) if name.startswith(PREFIX) else None


def attribute(op: Any, name: str) -> Any:
    """Return an attribute of a collective of either IR."""
    if type_of(op) == _py_func.TYPE:
        return _py_func.attribute(op, name)
    if _py_op.is_one(op):
        return _py_op.attribute(op, name)
    return op.attr(name) if hasattr(op, "attr") else op.attrs()[name]


def collectives_of(program: Any) -> list[Any]:
    """Return the operators of the program that are collectives of ours, in their order."""
    blocks = program.blocks
    return [op for block in blocks for op in block.ops if kind_of(op) is not None]


def numbered(kind: str) -> str:
    """Return a name for one more collective of the program that is being written, by its position among them."""
    return f"{kind}.{len(collectives_of(paddle.static.default_main_program()))}"


def call(kind: str, x: Any, attributes: dict[str, Any], shapes: Sequence[Sequence[int]] | None = None) -> Any:
    """Add an operator to the program that is being written, and return its result.

    Args:
        kind: the collective.
        x: a tensor of the program, or a list of them, for which the results are in place.
        attributes: in the operator's order.
        shapes: of the results, if they differ from the operator's own; for PIR.
    """
    is_list = isinstance(x, (list, tuple))
    if in_pir() and load() is Build.PY_FUNC:
        made = _py_op.call(kind, list(x) if is_list else [x], attributes, shapes)
        return made if is_list else made[0]
    if in_pir():
        results = paddle._C_ops._run_custom_op(PREFIX + kind, list(x) if is_list else x, *attributes.values())
        return _flat(results) if is_list else results[0]
    helper = LayerHelper(PREFIX + kind)
    if is_list:
        helper.append_op(**description(kind, list(x), list(x), attributes))
        return list(x)
    output = helper.create_variable_for_type_inference(dtype=x.dtype)
    if load() is Build.PY_FUNC:
        output.desc.set_shape(_py_func.shape_of(kind, x.shape))
    helper.append_op(**description(kind, [x], [output], attributes))
    return output


def call_of_several(
    kind: str, inputs: Mapping[str, Any], outputs: Mapping[str, Sequence[int]], dtype: str, attributes: dict[str, Any]
) -> list[Any]:
    """Add an operator with several inputs and outputs, which have no gradient and all the same dtype; return these.

    Args:
        kind: the collective.
        inputs: the tensors, by name.
        outputs: the shapes of the results, by name.
        dtype: of the results.
        attributes: in the operator's order.
    """
    if in_pir() and load() is Build.PY_FUNC:
        results = _py_op.call(kind, list(inputs.values()), attributes, list(outputs.values()))
    elif in_pir():
        results = _flat(paddle._C_ops._run_custom_op(PREFIX + kind, *inputs.values(), *attributes.values()))
    else:
        helper = LayerHelper(PREFIX + kind)
        results = [helper.create_variable_for_type_inference(dtype=dtype) for _ in outputs]
        if load() is Build.PY_FUNC:
            for value, shape in zip(results, outputs.values(), strict=True):
                value.desc.set_shape(list(shape))
            operator = _py_func.description(kind, list(inputs.values()), results, attributes)
        else:
            operator = {
                "type": PREFIX + kind,
                "inputs": {name: [value] for name, value in inputs.items()},
                "outputs": {name: [value] for name, value in zip(outputs, results, strict=True)},
                "attrs": attributes,
            }
        helper.append_op(**operator)
    for each in results:
        each.stop_gradient = True
    return results


def description(kind: str, inputs: Sequence[Any], outputs: Sequence[Any], attributes: dict[str, Any]) -> dict[str, Any]:
    """Return a collective of the old IR, with variables or their names, for insertion into a block."""
    if load() is Build.PY_FUNC:
        return _py_func.description(kind, inputs, outputs, attributes)
    return {
        "type": PREFIX + kind,
        "inputs": {f"X{_LIST if kind in _py_func.OF_LISTS else ''}": list(inputs)},
        "outputs": {f"Out{_LIST if kind in _py_func.IN_PLACE else ''}": list(outputs)},
        "attrs": attributes,
    }


def _flat(results: Any) -> list[Any]:
    return [value for each in results for value in (each if isinstance(each, (list, tuple)) else [each])]


def check_ring(ring_id: int) -> int:
    """Return `ring_id`. Raises InvalidArgumentError unless it is a number from 0 to 63."""
    if isinstance(ring_id, bool) or not isinstance(ring_id, int) or not 0 <= ring_id < 64:
        raise InvalidArgumentError(f"ring_id must be a number from 0 to 63, not {ring_id!r}")
    return ring_id
