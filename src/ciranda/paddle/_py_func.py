"""The operators of programs without their library: Python functions, which Paddle's `py_func` calls.

Names and results are the library's, so that ranks with and without it work together. Starts copy their tensors, and
syncs return the copies. Paddle's PIR has no `py_func`: for its programs the same functions are operators of another
kind (`_py_op`).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import paddle
from paddle.base import core
from paddle.static.nn.common import PyFuncRegistry

from ciranda import _basics
from ciranda._basics import at_end
from ciranda._core import REDUCE_OPS
from ciranda._frameworks.sampling import sample
from ciranda._ops import Max, Min, Product, Sum
from ciranda.errors import CirandaError, InvalidArgumentError, NotSupportedError
from ciranda.numpy import ops
from ciranda.process_sets import ProcessSet, global_process_set

Array: TypeAlias = Any
Attributes: TypeAlias = Mapping[str, Any]
#: Called with the tensors of a look, each to be taken only if it is needed. Returns whether it has seen enough.
See: TypeAlias = Callable[[Iterator[Array]], bool]

TYPE = "py_func"
#: Operators on any number of tensors, with as many results.
IN_PLACE = ("allreduce_start", "sync_comm")
#: The same, and those with one result.
OF_LISTS = (*IN_PLACE, "look")
#: Makes Paddle's executor run operators in program order, also those of the backward pass, which Paddle writes: ranks
#: with different orders could deadlock.
IN_ORDER = "FLAGS_new_executor_sequential_run"
_OPS = {"allreduce_sum": Sum, "allreduce_max": Max, "allreduce_min": Min, "allreduce_prod": Product}
#: The class of the tensors that programs have in their scopes.
TENSOR = getattr(core, "DenseTensor", None) or core.LoDTensor


class Function(NamedTuple):
    """The collective of an operator."""

    kind: str
    attributes: Attributes


#: By Paddle's number of the function.
_functions: dict[int, Function] = {}
#: The exceptions of functions in this run: Paddle reports only that they have failed.
failures: list[BaseException] = []


def kind_of(op: Any) -> str | None:
    """Return the collective that a `py_func` of the old IR is; None for others."""
    found = _functions.get(op.attr("forward_callable_id"))
    return None if found is None else found.kind


def attribute(op: Any, name: str) -> Any:
    """Return an attribute of a collective."""
    return _functions[op.attr("forward_callable_id")].attributes[name]


def description(kind: str, inputs: Sequence[Any], outputs: Sequence[Any], attributes: Attributes) -> dict[str, Any]:
    """Return the operator that replaces the library's, for insertion into a block.

    Args:
        kind: the collective.
        inputs: variables, or their names.
        outputs: of its results.
        attributes: those of the library's operator, and Paddle's own, which begin with op_role.
    """
    ours = {name: value for name, value in attributes.items() if not name.startswith("op_role")}
    forward = PyFuncRegistry(_on_tensors(FORWARD[kind], ours)).id
    _functions[forward] = Function(kind, ours)
    backward = -1
    if kind in BACKWARD:
        backward = PyFuncRegistry(_on_tensors(BACKWARD[kind], ours)).id
        _functions[backward] = Function(f"{kind}_grad", ours)
    numbers = {"forward_callable_id": forward, "backward_callable_id": backward, "backward_skip_vars": []}
    roles = {name: value for name, value in attributes.items() if name.startswith("op_role")}
    return {
        "type": TYPE,
        "inputs": {"X": list(inputs)},
        "outputs": {"Out": list(outputs)},
        # Shown in printed programs.
        "attrs": {**numbers, **roles, "op_namescope": f"/ciranda/{kind}/{ours.get('name', '')}/"},
    }


def shape_of(kind: str, shape: Sequence[int]) -> list[int]:
    """Return the shape of the result of a collective with one; -1 rows if only the ranks know their number."""
    return [-1, *shape[1:]] if kind in ("allgather", "reducescatter") else list(shape)


def raise_failures() -> None:
    """Patch Paddle's executor, once in a process, to raise the exception of a function that has failed."""
    plain = paddle.static.Executor.run
    if hasattr(plain, "__wrapped__") and plain.__module__ == __name__:
        return

    @functools.wraps(plain)
    def run(*arguments: Any, **options: Any) -> Any:
        failures.clear()
        try:
            return plain(*arguments, **options)
        except Exception as error:
            if not failures:
                raise
            raise failures[0] from error

    run.__module__ = __name__
    paddle.static.Executor.run = run


# --- tensors


def _on_tensors(function: Callable[[Attributes, list[Any]], Sequence[Any]], attributes: Attributes) -> Any:
    def call(*tensors: Any) -> list[Any]:
        try:
            found = function(attributes, list(tensors))
        except BaseException as error:
            failures.append(error)
            raise
        return [_tensor(each) if isinstance(each, (np.ndarray, np.generic)) else each for each in found]

    return call


def array_of(tensor: Any) -> Array:
    array = np.array(tensor)
    if "bfloat16" in str(tensor._dtype()):
        import ml_dtypes

        array = array.view(ml_dtypes.bfloat16)
    return array


def _tensor(array: Array) -> Any:
    plain = np.ascontiguousarray(array).reshape(np.shape(array))
    tensor = TENSOR()
    # Paddle represents bfloat16 in NumPy as uint16.
    tensor.set(plain.view(np.uint16) if plain.dtype.name == "bfloat16" else plain, paddle.CPUPlace())
    return tensor


def memory_of(tensor: Any) -> Array:
    """Return the tensor's own memory as an array."""
    like = array_of(tensor)
    if not like.size:
        return like
    return np.frombuffer((ctypes.c_char * like.nbytes).from_address(tensor._ptr()), like.dtype).reshape(like.shape)


def _lane(attributes: Attributes) -> ProcessSet:
    return global_process_set.lane(attributes["ring_id"])


# --- collectives that return their result


def _reduced(kind: str) -> Any:
    def forward(attributes: Attributes, tensors: list[Any]) -> list[Any]:
        found = ops.allreduce(
            array_of(tensors[0]), name=attributes["name"], op=_OPS[kind], process_set=_lane(attributes)
        )
        return [found]

    return forward


def _allgather(attributes: Attributes, tensors: list[Any]) -> list[Any]:
    return [ops.allgather(array_of(tensors[0]), attributes["name"], _lane(attributes))]


def _reducescatter(attributes: Attributes, tensors: list[Any]) -> list[Any]:
    array = array_of(tensors[0])
    return [ops.reducescatter(array, name=attributes["name"], op=Sum, process_set=_lane(attributes))]


def _broadcast(attributes: Attributes, tensors: list[Any]) -> list[Any]:
    root = attributes["root"]
    return [ops.broadcast(array_of(tensors[0]), root, attributes["name"], _lane(attributes))]


def _shard_labels(attributes: Attributes, tensors: list[Any]) -> list[Any]:
    labels, sizes = (np.array(tensor) for tensor in tensors)
    name, lane = attributes["name"], _lane(attributes)
    told = np.concatenate([[sizes[0], len(labels)], labels]).astype(np.int64)
    everything = ops.allgather(told, name, lane)
    rows = []
    while len(everything):
        rows.append(everything[: _N_TOLD + everything[1]])
        everything = everything[len(rows[-1]) :]
    for rank, row in enumerate(rows):
        _check_labels(f"{name}: rank {rank} gives", row, attributes["n_classes"])
    if len(rows) != attributes["n_shards"]:
        raise InvalidArgumentError(
            f"{name}: {len(rows)} ranks take part in a sharded layer that was made for {attributes['n_shards']}: make "
            "it anew after the number of ranks has changed"
        )
    everyones = np.concatenate([row[_N_TOLD:] for row in rows])
    rank_of = np.repeat(np.arange(len(rows)), [len(row) - _N_TOLD for row in rows])
    is_here = (attributes["first"] <= everyones) & (everyones < attributes["end"])
    places = np.stack([np.arange(len(everyones)), np.where(is_here, everyones - attributes["first"], 0)], axis=1)
    is_mine = rank_of == _basics.rank()
    counts = np.maximum([is_mine.sum(), len(everyones)], 1)
    found = (places, is_here, is_mine, np.flatnonzero(is_mine), counts)
    return [each.astype(np.int64) for each in found]


def _sample_labels(attributes: Attributes, tensors: list[Any]) -> list[Any]:
    places, is_here = (np.array(tensor) for tensor in tensors)
    name, n_classes = attributes["name"], attributes["n_classes"]
    step = _runs.get(name, 0)
    _runs[name] = step + 1
    here = np.flatnonzero(is_here)
    rate = (attributes["n_wanted"] - 0.5) / n_classes  # rounds up to n_wanted
    chosen = sample(n_classes, places[here, 1], rate, attributes["seed"], step, attributes["shard"])
    places[here, 1] = np.searchsorted(chosen, places[here, 1])
    return [chosen, places]


#: The number of values that a rank sends before its labels.
_N_TOLD = 2


def _check_labels(who: str, row: Array, n_classes: int) -> None:
    if row[0] != row[1]:
        raise InvalidArgumentError(f"{who} {row[1]} labels for {row[0]} samples")
    wrong = np.flatnonzero((row[_N_TOLD:] < 0) | (row[_N_TOLD:] >= n_classes))
    if len(wrong):
        raise InvalidArgumentError(
            f"{who} label {row[_N_TOLD + wrong[0]]} for its sample {wrong[0]}, but the layer's classes are 0 to "
            f"{n_classes - 1}"
        )


# --- gradients: the last tensor is the gradient of the result, the first the input


def _gradient_name(attributes: Attributes) -> str:
    return f"{attributes['name']}.gradient"


def _sum_of(gradient: Array, attributes: Attributes) -> Array:
    return ops.allreduce(gradient, name=_gradient_name(attributes), op=Sum, process_set=_lane(attributes))


def _allreduce_gradient(attributes: Attributes, tensors: list[Any]) -> list[Any]:
    return [_sum_of(array_of(tensors[-1]), attributes)]


def _allgather_gradient(attributes: Attributes, tensors: list[Any]) -> list[Any]:
    n_rows, gradient = len(np.array(tensors[0])), array_of(tensors[-1])
    name, lane = _gradient_name(attributes), _lane(attributes)
    rows = ops.allgather(np.array([n_rows], np.int64), f"{name}.rows", lane)
    if (rows == n_rows).all():
        return [ops.reducescatter(gradient, name=name, op=Sum, process_set=lane)]
    before = int(rows[: _basics.rank()].sum())
    return [_sum_of(gradient, attributes)[before : before + n_rows]]


def _reducescatter_gradient(attributes: Attributes, tensors: list[Any]) -> list[Any]:
    return [ops.allgather(array_of(tensors[-1]), _gradient_name(attributes), _lane(attributes))]


def _broadcast_gradient(attributes: Attributes, tensors: list[Any]) -> list[Any]:
    gradient, root = array_of(tensors[-1]), attributes["root"]
    found = ops.reduce(gradient, root, op=Sum, name=_gradient_name(attributes), process_set=_lane(attributes))
    return [found if _basics.rank() == root else np.zeros_like(gradient)]


def _no_gradient(attributes: Attributes, _: list[Any]) -> list[Any]:
    raise NotSupportedError(
        f"{attributes['name']} has no gradient: the allreduce of this type is not differentiable. Detach its input or "
        "its result (stop_gradient = True)"
    )


# --- in two halves


class _Started(NamedTuple):
    handle: Any
    #: Kept until it is done: the engine writes to their memory.
    tensors: list[Any]


#: The calls that have been started and not waited for, by name; None if a run does not communicate.
_started: dict[str, _Started | None] = {}
#: The number of runs since one communicated, and the intervals that replace those of the program.
_runs: dict[str, int] = {}
_intervals: dict[str, int] = {}
at_end.append(_runs.clear)


def set_interval(name: str, every: int) -> None:
    """The counterpart of the library's function."""
    _runs[name], _intervals[name] = 0, every


def live_calls() -> int:
    """The counterpart of the library's function."""
    return len(_started)


def _is_due(attributes: Attributes) -> bool:
    name = attributes["name"]
    _runs[name] = _runs.get(name, 0) + 1
    if _runs[name] < (_intervals.get(name) or attributes["every"]):
        return False
    _runs[name] = 0
    return True


def must_start(attributes: Attributes) -> bool:
    """Whether a start begins its call in this run. Raises InvalidArgumentError if the last one is pending."""
    name = attributes["name"]
    before = _started.get(name)
    if before is not None and not before.handle.poll():
        raise InvalidArgumentError(
            f"{name} is started again before the call of the same name has ended: give collectives names of their own"
        )
    _started[name] = None
    return _is_due(attributes)


def start_in_place(attributes: Attributes, tensors: list[Any]) -> None:
    """Start to combine tensors in their memory; they are kept until a sync."""
    handle = ops.grouped_allreduce_async_(
        [memory_of(each) for each in tensors],
        op=REDUCE_OPS[attributes["op"]],
        name=attributes["name"],
        prescale_factor=float(attributes["prescale"]),
        postscale_factor=float(attributes["postscale"]),
        process_set=_lane(attributes),
    )
    _started[attributes["name"]] = _Started(handle, tensors)


def _allreduce_start(attributes: Attributes, tensors: list[Any]) -> list[Any]:
    if not must_start(attributes):
        return tensors
    copies = [_tensor(array_of(tensor)) for tensor in tensors]
    start_in_place(attributes, copies)
    return copies


def _sync_comm(attributes: Attributes, tensors: list[Any]) -> list[Any]:
    failure: CirandaError | None = None
    for name in attributes["names"]:
        if name not in _started:
            raise InvalidArgumentError(f"sync_comm waits for {name}, which no allreduce_start of this run has started")
        started = _started.pop(name)
        try:
            if started is not None:
                started.handle.wait()
        except CirandaError as error:
            failure = failure or error  # the others are waited for as well
    if failure is not None:
        raise failure
    return tensors


# --- looks

_sees: dict[str, See] = {}


def add_look(name: str, see: See) -> str:
    """The counterpart of the library's function."""
    numbered = f"{name}#{len(_sees)}"
    _sees[numbered] = see
    return numbered


def _look(attributes: Attributes, tensors: list[Any]) -> list[Any]:
    _sees[attributes["name"]](map(array_of, tensors))
    return [np.zeros(1, np.int64)]


#: The operators' functions of attributes and Paddle's tensors, which return arrays, or the given tensors.
FORWARD: dict[str, Any] = {
    **{kind: _reduced(kind) for kind in _OPS},
    "allgather": _allgather,
    "reducescatter": _reducescatter,
    "broadcast": _broadcast,
    "shard_labels": _shard_labels,
    "sample_labels": _sample_labels,
    "allreduce_start": _allreduce_start,
    "sync_comm": _sync_comm,
    "look": _look,
}
#: The functions of their gradients.
BACKWARD: dict[str, Any] = {
    "allreduce_sum": _allreduce_gradient,
    "allreduce_max": _no_gradient,
    "allreduce_min": _no_gradient,
    "allreduce_prod": _no_gradient,
    "allgather": _allgather_gradient,
    "reducescatter": _reducescatter_gradient,
    "broadcast": _broadcast_gradient,
}
