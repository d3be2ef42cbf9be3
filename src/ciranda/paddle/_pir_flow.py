"""What a program of PIR computes from its losses: the backward passes, and what is made of their gradients.

PIR marks neither. A backward pass begins with ones in the shape of a loss. All that is computed from them belongs to
it as long as it is linear in them, as derivatives are: what clipping, regularization and loss scaling make of gradients
is not. So a gradient as the backward pass leaves it may come from any operator, as the sum of a parameter's uses does,
or the concat that is the gradient of a split.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from paddle.base import libpaddle

from ciranda.paddle import programs
from ciranda.paddle.passages import Key, Kind, Operator
from ciranda.paddle.rewriting import FINITE

#: Operators of derivatives that may keep a gradient's shape, and have no `_grad` in their names. Behind the last one
#: with it, others that keep the shape are taken for an optimizer's.
_LINEAR = ("assign", "assign_out", "cast", "conj", "flip", "reverse", "scale", "share_data", "sum", "transpose")
#: Linear if every addend is a gradient: with a multiple of the parameter the sum is one that regularizes.
_SUMS = ("add", "add_n", "subtract")
_SPLIT, _COMBINE = "builtin.split", "builtin.combine"
#: Operators on lists: each result is that of the tensor at its position.
_ON_LISTS = (FINITE, "update_loss_scaling")


def source_of(value: Any) -> Any:
    """Return the operator that computes a value; None if none does."""
    return value.get_defining_op()


def _plain_name(op: Any) -> str:
    """Return an operator's name without its dialect, and without the mark of those in place."""
    return str(programs.kind_of(op) or op.name().removeprefix("pd_op.")).rstrip("_")


def _tensors_of(value: Any) -> list[Any]:
    """Return the tensors that a list of them is made of; other values as they are."""
    op = source_of(value)
    return list(op.operands_source()) if op is not None and op.name() == _COMBINE else [value]


def _inputs_of(op: Any) -> list[Any]:
    """Return the tensors that an operator reads, also those that only its blocks read."""
    values = list(op.operands_source())
    if list(op.blocks()):
        values += list(libpaddle.pir.get_used_external_value(op))
    return [each for value in values if value is not None and value.initialized() for each in _tensors_of(value)]


def _keys_of(value: Any) -> list[Key]:
    """Return what identifies a tensor, or each of a list of them."""
    if not value.is_combine():
        return [value.id]
    return [(value.id, index) for index in range(len(value.type().as_vec_type().as_list()))]


def _read_by(op: Any) -> list[Key]:
    return [key for value in _inputs_of(op) for key in _keys_of(value)]


def _written_by(op: Any) -> list[Key]:
    return [key for value in op.results() if value.initialized() for key in _keys_of(value)]


def _begins_backward(op: Any) -> bool:
    """Whether a backward pass begins here: with ones, in the shape of a loss."""
    return _filling(op) == 1 and math.prod(op.operand_source(0).shape) == 1


def _filling(op: Any) -> float | None:
    """Return the number that an operator fills a tensor of another's shape with; None for other operators."""
    if _plain_name(op) != "full_like":
        return None
    number = source_of(op.operand_source(1))
    return number.attrs()["value"] if number is not None and number.name() == "pd_op.full" else None


class Flow:
    """Of the values of a program, those that are computed from a loss's gradient.

    Args:
        ops: those of the program, in its order.
    """

    def __init__(self, ops: Sequence[Any]) -> None:
        leading = _leading_to_derivatives(ops)
        #: By a value's key: whether the backward pass computes it; no entry if it is not computed from its beginning.
        self._is_linear: dict[Key, bool] = {}
        for op in (each for each in ops if each.name() != _COMBINE):
            found = [self._is_linear[key] for key in _read_by(op) if key in self._is_linear]
            # The backward pass adds zeros for what a loss does not depend on.
            begins = _begins_backward(op) or _filling(op) == 0
            if found or begins:
                is_linear = begins or op.id() in leading or (all(found) and _is_linear(op, self._is_gradient))
                self._is_linear.update(dict.fromkeys(_written_by(op), is_linear))

    def _is_gradient(self, value: Any) -> bool:
        return any(key in self._is_linear for key in _keys_of(value))

    def raw(self, value: Any, shape: Sequence[int]) -> Any:
        """Return the gradient of the backward pass, of this shape, from which `value` is computed; None without one."""
        op = source_of(value)
        if op is None or self._is_linear.get(value.id) is None or list(value.shape) != list(shape):
            return None
        if self._is_linear[value.id]:
            return value
        candidates = _inputs_of(op)
        if op.name() == _SPLIT:
            candidates = _in_place_of(value, op)
        return next((found for each in candidates if (found := self.raw(each, shape)) is not None), None)


def _in_place_of(value: Any, split: Any) -> list[Any]:
    """Return the tensor that stood at the place in a list where `value` stands after an operator on it."""
    op = source_of(split.operand_source(0))
    position = value.index() if callable(value.index) else 0
    return [_tensors_of(op.operand_source(0))[position]] if _plain_name(op) in _ON_LISTS else []


def _leading_to_derivatives(ops: Sequence[Any]) -> set[int]:
    """Return the numbers of the operators whose results derivatives are computed from, and of these."""
    found: set[int] = set()
    needed: set[Key] = set()
    for op in reversed(ops):
        if _plain_name(op).endswith("_grad") or not needed.isdisjoint(_written_by(op)):
            found.add(op.id())
            needed.update(_read_by(op))
    return found


def _is_linear(op: Any, is_gradient: Callable[[Any], bool]) -> bool:
    """Whether an operator on gradients of the backward pass belongs to it: else it is one of the optimizer's."""
    inputs = _inputs_of(op)
    if _plain_name(op) in _SUMS:
        return all(map(is_gradient, inputs))
    if _plain_name(op) in _LINEAR or op.name() == _SPLIT or _is_control_flow(op):
        return True
    # What optimizers make of a gradient has its shape, or is a number, as a norm is.
    shapes = [list(value.shape) for value in inputs if value.is_dense_tensor_type() and is_gradient(value)]
    tensors = [value for value in op.results() if value.initialized() and value.is_dense_tensor_type()]
    return not any(math.prod(value.shape) == 1 or list(value.shape) in shapes for value in tensors)


def _is_control_flow(op: Any) -> bool:
    return bool(list(op.blocks())) and programs.kind_of(op) is None


# --- for the check of a program


def steps(ops: Sequence[Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the operators that step a parameter, with the parameter and its gradient."""
    for op in ops:
        is_plain = op.name().startswith("pd_op.") and not list(op.blocks())
        names = op.get_input_names() if is_plain else []
        if "param" in names and "grad" in names:
            yield op, op.operand_source(names.index("param")), op.operand_source(names.index("grad"))


def trace(ops: Sequence[Any]) -> Iterator[Operator]:
    """Yield a program's operators as `passages.check_combined()` takes them."""
    updates = {op.id(): (str(parameter.name), gradient.id) for op, parameter, gradient in steps(ops)}
    for op in ops:
        if op.name() != _COMBINE:
            update = updates.get(op.id())
            yield Operator(
                _kind(op) if update is None else Kind.STEP,
                _read_by(op),
                _written_by(op),
                [] if update is None else [update],
            )


def _kind(op: Any) -> Kind:
    name = _plain_name(op)
    if name == "allreduce_start":
        return Kind.COMBINE
    if op.name() == _SPLIT or name in (*_ON_LISTS, "sync_comm"):
        return Kind.EACH
    return Kind.SEED if _begins_backward(op) else Kind.OTHER
