"""The operators of PIR's programs without their library: Python functions, which Paddle 3.3 and newer call.

Paddle documents only `paddle.static.register_op`; this uses the function below it, which takes functions of any number
of tensors. Such an operator has no gradient: one that needs a gradient is placed in a `static_pylayer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
from paddle.base import core

from ciranda.paddle import _py_func
from ciranda.paddle._py_func import Attributes, Function

_DIALECT = "py_op."
_PYLAYER = "pd_op.pylayer"

#: By the name of the operator.
_functions: dict[str, Function] = {}
#: Keeps the functions of which Paddle has only the addresses.
_kept: list[Any] = []


def is_there() -> bool:
    """Whether this Paddle has operators of PIR that are Python functions."""
    return hasattr(paddle._C_ops, "_run_python_op")


def is_one(op: Any) -> bool:
    """Whether an operator of either IR may be one of this module's."""
    name = "" if hasattr(op, "type") else op.name()
    return name == _PYLAYER or name.startswith(_DIALECT)


def _function(op: Any) -> Function | None:
    if op.name() == _PYLAYER:
        inner = [each for block in op.blocks() for each in block.ops]
        return next(filter(None, map(_function, inner)), None)
    return _functions.get(op.name())


def kind_of(op: Any) -> str | None:
    """Return the collective that an operator of PIR is; None for others."""
    found = _function(op)
    return None if found is None else found.kind


def attribute(op: Any, name: str) -> Any:
    """Return an attribute of a collective."""
    found = _function(op)
    assert found is not None
    return found.attributes[name]


# --- what Paddle calls


def _eager(found: Any) -> Any:
    array = np.ascontiguousarray(found).reshape(np.shape(found))
    # Paddle represents bfloat16 in NumPy as uint16.
    plain = array.view(np.uint16) if array.dtype.name == "bfloat16" else array
    with paddle.base.dygraph.base.guard():
        return core.eager.Tensor(value=plain, place=paddle.CPUPlace())


def _on_tensors(function: Callable[[Attributes, list[Any]], Sequence[Any]], attributes: Attributes) -> Any:
    def call(*tensors: Any) -> Any:
        try:
            found = function(attributes, [each.get_tensor() for each in tensors])
            # An operator that returns its inputs shares their memory with its results.
            results = tuple(_eager(each) for each in found) or tensors
        except BaseException as error:
            _py_func.failures.append(error)
            raise
        return results if len(results) > 1 else results[0]

    return call


# Functions in place return nothing.


def _started(attributes: Attributes, tensors: list[Any]) -> Sequence[Any]:
    if not _py_func.must_start(attributes):
        return ()
    shared = [type(each)() for each in tensors]
    for mine, theirs in zip(shared, tensors, strict=True):
        mine._share_data_with(theirs)
    _py_func.start_in_place(attributes, shared)
    return ()


def _synced(attributes: Attributes, tensors: list[Any]) -> Sequence[Any]:
    _py_func.FORWARD["sync_comm"](attributes, tensors)
    return ()


_FORWARD = {**_py_func.FORWARD, "allreduce_start": _started, "sync_comm": _synced}


# --- writing to a program


def _shapes(kind: str, shapes: Sequence[Sequence[int]] | None) -> Any:
    def infer(*given: Any) -> Any:
        if shapes is not None:
            made = tuple(core.NativeMetaTensor(dtype=given[0].dtype, shape=list(shape)) for shape in shapes)
        elif kind in _py_func.FORWARD:
            made = tuple(
                core.NativeMetaTensor(dtype=each.dtype, shape=_py_func.shape_of(kind, each.shape)) for each in given
            )
        else:  # a gradient, of the shape of the first
            made = given[:1]
        return made if len(made) > 1 else made[0]

    return infer


def _added(
    kind: str, function: Any, values: Sequence[Any], attributes: Attributes, shapes: Sequence[Sequence[int]] | None
) -> list[Any]:
    """Add one operator, and return its results: as many as there are shapes, or values."""
    # Paddle takes a name with _grad in it for a gradient, and looks for its forward operator.
    name = f"c_ciranda_{kind.replace('_grad', '_backward')}_{len(_functions)}"
    call, infer = _on_tensors(function, attributes), _shapes(kind, shapes)
    _kept.extend((call, infer))
    n_results = len(shapes) if shapes is not None else len(values) if kind in _py_func.IN_PLACE else 1
    _functions[_DIALECT + name] = Function(kind, attributes)
    return list(
        paddle._C_ops._run_python_op(
            *values,
            name=name,
            input_names=[f"X{index}" for index in range(len(values))],
            output_names=[f"Out{index}" for index in range(n_results)],
            attrs={"infer_meta_fn_ptr": infer, "fn_ptr": call},
            inplace_map={},
        )
    )


def call(
    kind: str, values: Sequence[Any], attributes: Attributes, shapes: Sequence[Sequence[int]] | None = None
) -> list[Any]:
    """Add an operator to the program that is being written, and return its results.

    Args:
        kind: the collective.
        values: its tensors.
        attributes: those of the library's operator.
        shapes: of the results, if they differ from the operator's own.
    """
    if kind not in _py_func.BACKWARD or values[0].stop_gradient:
        return _added(kind, _FORWARD[kind], values, attributes, shapes)
    (x,) = values

    def backward(gradient: Any) -> Any:
        return _added(f"{kind}_grad", _py_func.BACKWARD[kind], [x, gradient], attributes, None)[0]

    return [
        paddle.static.nn.static_pylayer(
            lambda value: _added(kind, _FORWARD[kind], [value], attributes, None)[0], [x], backward
        )
    ]
