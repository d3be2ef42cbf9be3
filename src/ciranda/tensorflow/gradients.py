"""Gradients of the ops, by `ciranda._collectives.rules`; second derivatives are those of the ops that they call.

The backward pass communicates, so all ranks must make it.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.util import compat

from ciranda._ops import Average, Max, Min, Sum
from ciranda.errors import NotSupportedError
from ciranda.process_sets import ProcessSet
from ciranda.tensorflow._execution import GRADIENTS, Call, is_building_graph, run
from ciranda.tensorflow.places import rank_in_set_op, rank_op, size_op

_DIVIDE_BY_ALL = 4
_SET_BITS = 0xFFFFFFFF


class _SetOfNode(ProcessSet):
    """The process set of a node. If it has been removed, the op fails."""

    def __init__(self, number: int) -> None:
        self.process_set_id = number & _SET_BITS
        self._lane = number >> 32 & 0x7FFFFFFF
        self._needs_all = number < 0
        self._ranks = []


def _call_of(node: Any) -> Call:
    """Return the parameters of a node, with the name of its gradient; in a graph, where all calls get names, none."""
    name = "" if is_building_graph() else compat.as_str(node.get_attr("tensor_name"))
    return Call(
        name=f"{name}.gradient" if name else None,
        op=int(node.get_attr("reduce_op")),
        root_rank=int(node.get_attr("root_rank")),
        prescale=float(compat.as_str(node.get_attr("prescale_factor"))),
        postscale=float(compat.as_str(node.get_attr("postscale_factor"))),
        process_set=_SetOfNode(int(node.get_attr("process_set"))),
        divisor="world" if int(node.get_attr("flags")) & _DIVIDE_BY_ALL else "contributors",
    )


def _part(call: Call, part: str, op: int = Sum) -> Call:
    """Return another call of the same gradient."""
    name = None if call.name is None else f"{call.name}.{part}"
    return Call(name=name, op=op, process_set=call.process_set)


def _id_of(call: Call) -> int:
    return call.process_set.process_set_id or 0


def _present(node: Any, gradients: tuple[Any, ...]) -> list[Any]:
    """Return the gradients of the outputs, zeros where there are none."""
    pairs = zip(node.outputs, gradients, strict=False)
    return [tf.zeros_like(output) if each is None else tf.convert_to_tensor(each) for output, each in pairs]


def _averaged(gradients: list[Any], call: Call) -> list[Any]:
    return run("CirandaAllreduce", gradients, Call(name=call.name, op=Average, process_set=call.process_set))


def _allreduce(node: Any, *gradients: Any) -> list[Any]:
    call = _call_of(node)
    mine = _present(node, gradients)
    if call.op in (Average, Sum):
        return run("CirandaAllreduce", mine, call)
    if call.op not in (Min, Max):
        raise NotSupportedError(
            "allreduce has a gradient with op=Average, Sum, Min and Max only; use tf.stop_gradient() on its input"
        )
    totals = run("CirandaAllreduce", mine, call._replace(op=Sum))
    are_chosen = [
        tf.cast(tf.equal(given, best), given.dtype)
        for given, best in zip(node.inputs, _compared(node, call), strict=True)
    ]
    counts = run("CirandaAllreduce", are_chosen, _part(call, "chosen"))
    return [
        total * tf.math.divide_no_nan(chosen, count)
        for total, chosen, count in zip(totals, are_chosen, counts, strict=True)
    ]


def _compared(node: Any, call: Call) -> list[Any]:
    """Return the selected inputs. Factors may round the compared values or reverse their order."""
    if (call.prescale, call.postscale) == (1.0, 1.0):
        return list(node.outputs)
    op = call.op if call.prescale >= 0 else Min + Max - call.op
    return run("CirandaAllreduce", list(node.inputs), _part(call, "compared", op))


def _allgather(node: Any, *gradients: Any) -> list[Any]:
    call = _call_of(node)
    reduced = _averaged(_present(node, gradients), call)
    counts = tf.stack([tf.shape(tensor, tf.int64)[0] for tensor in node.inputs])
    everyones = run("CirandaAllgather", [counts[tf.newaxis]], _part(call, "sizes"))[0]
    before = tf.reduce_sum(everyones[: rank_in_set_op(_id_of(call))], axis=0)
    return [each[before[i] : before[i] + counts[i]] for i, each in enumerate(reduced)]


def _broadcast(node: Any, *gradients: Any) -> list[Any]:
    call = _call_of(node)
    is_root = tf.equal(rank_op(), call.root_rank)
    return [tf.where(is_root, each, tf.zeros_like(each)) for each in _averaged(_present(node, gradients), call)]


def _alltoall(node: Any, *gradients: Any) -> list[Any]:
    n_tensors = len(node.outputs) // 2
    of_outputs = _present(node, gradients)[:n_tensors]
    given = _call_of(node)
    call = Call(name=given.name, process_set=given.process_set)
    back = run("CirandaAlltoall", of_outputs, call, node.outputs[n_tensors:])
    return [*back[:n_tensors], *[None] * n_tensors]


def _reducescatter(node: Any, *gradients: Any) -> list[Any]:
    call = _call_of(node)
    if call.op not in (Average, Sum):
        raise NotSupportedError("reducescatter has a gradient for op=Average and op=Sum only")
    scaled = []
    for each in _present(node, gradients):
        factor = tf.cast(call.prescale * call.postscale, each.dtype)
        scaled.append(each * (factor * tf.cast(size_op(_id_of(call)), each.dtype) if call.op == Sum else factor))
    return run("CirandaAllgather", scaled, Call(name=call.name, process_set=call.process_set))


GRADIENTS |= {
    "CirandaAllreduce": _allreduce,
    "CirandaAllgather": _allgather,
    "CirandaBroadcast": _broadcast,
    "CirandaAlltoall": _alltoall,
    "CirandaReducescatter": _reducescatter,
}
for _name, _gradient in GRADIENTS.items():
    tf.RegisterGradient(_name)(_gradient)
for _name in ("CirandaPlace", "CirandaJoin", "CirandaBarrier"):
    tf.no_gradient(_name)
