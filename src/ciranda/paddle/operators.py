"""The operators: collectives for programs of either IR, which also take tensors of dygraph.

Each returns a tensor of the program, or, given one of dygraph, makes the call at once. `name` identifies the call
across ranks; without one, an operator of a program is named by its position among the program's collectives, which must
then be the same on all ranks. Calls of different rings do not wait for each other; a ring is created on first use.

Their gradients are those of the sum of all ranks' losses: of allreduce_sum the sum of the ranks' gradients, of
allgather the reducescatter, of reducescatter the allgather, of broadcast the sum for the root and zeros elsewhere.
allreduce_max, allreduce_min and allreduce_prod have none: a request for one is refused. (The functions with Horovod's
names and other forms, as grouped_allgather, have Horovod's gradients: `ciranda.paddle.ops`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ciranda import _basics
from ciranda._collectives import Rule, rules
from ciranda._core import REDUCE_OPS
from ciranda._ops import Max, Min, Product, Sum
from ciranda.errors import InvalidArgumentError, NotSupportedError
from ciranda.paddle import _plugin, ops, programs
from ciranda.paddle.autograd import Autograd
from ciranda.paddle.tensors import collectives, is_tensor
from ciranda.process_sets import ProcessSet, global_process_set

#: A tensor of dygraph, or of a program.
Tensor = Any

#: The values of the operator's attribute `op`.
_NAME_OF = {number: name for name, number in REDUCE_OPS.items()}


def _ring(ring_id: int) -> ProcessSet:
    return global_process_set.lane(programs.check_ring(ring_id))


def _in_program(kind: str, x: Tensor, name: str | None, ring_id: int, **more: Any) -> Tensor:
    programs.check_ring(ring_id)
    if not programs.is_value(x):
        raise InvalidArgumentError(
            f"{kind} takes a tensor, of dygraph or of a program being written; got {type(x).__name__}"
        )
    _plugin.require_operators(f"{kind} in a program", programs.in_pir())
    return programs.call(kind, x, {"name": name or programs.numbered(kind), "ring_id": ring_id, **more})


def _recorded(rule: Rule[Any], x: Tensor) -> Tensor:
    """Return the result of the rule for one tensor of dygraph."""
    return Autograd.record(rule, [x])[0] if Autograd.needed([x]) else rule.forward([x])[0]


# --- reductions


class _NotDifferentiable(rules.Allreduce[Any]):
    def backward(self, gradients: Sequence[Any]) -> Sequence[Any]:
        kind = f"allreduce_{_NAME_OF[self.call.op]}"
        raise NotSupportedError(f"{kind} has no gradient; detach its input or its result (stop_gradient = True)")


def _allreduce(kind: str, op: int, x: Tensor, ring_id: int, name: str | None) -> Tensor:
    if not is_tensor(x):
        return _in_program(kind, x, name, ring_id)
    call = rules.Reduction(op, 1.0, 1.0, _ring(ring_id), None, "contributors")
    rule = rules.Allreduce if op == Sum else _NotDifferentiable
    return _recorded(rule(collectives, name, call), x)


def allreduce_sum(x: Tensor, ring_id: int = 0, name: str | None = None) -> Tensor:
    """Return the sum of all ranks' `x`. Its gradient is the sum of all ranks' gradients."""
    return _allreduce("allreduce_sum", Sum, x, ring_id, name)


def allreduce_max(x: Tensor, ring_id: int = 0, name: str | None = None) -> Tensor:
    """Return the greatest of all ranks' `x`, for each element. It has no gradient."""
    return _allreduce("allreduce_max", Max, x, ring_id, name)


def allreduce_min(x: Tensor, ring_id: int = 0, name: str | None = None) -> Tensor:
    """Return the least of all ranks' `x`, for each element. It has no gradient."""
    return _allreduce("allreduce_min", Min, x, ring_id, name)


def allreduce_prod(x: Tensor, ring_id: int = 0, name: str | None = None) -> Tensor:
    """Return the product of all ranks' `x`. It has no gradient."""
    return _allreduce("allreduce_prod", Product, x, ring_id, name)


# --- rows


class _Allgather(rules.Allgather[Any]):
    gradient_op = Sum


class _Broadcast(rules.Broadcast[Any]):
    gradient_op = Sum


class _Reducescatter(rules.Reducescatter[Any]):
    def backward(self, gradients: Sequence[Any]) -> Sequence[Any]:
        return self._collectives.grouped_allgather(gradients, None, self.call.process_set)


def _check_rows(kind: str, x: Tensor) -> None:
    if programs.is_value(x) and not len(x.shape):
        raise InvalidArgumentError(f"{kind}: a scalar has no rows; reshape it to [1]")


def allgather(x: Tensor, ring_id: int = 0, name: str | None = None) -> Tensor:
    """Return the rows of all ranks, in rank order. The number of rows may differ between ranks.

    Its gradient is the reducescatter: each rank gets the sum of all ranks' gradients of its own rows.
    """
    if not is_tensor(x):
        _check_rows("allgather", x)
        return _in_program("allgather", x, name, ring_id)
    return _recorded(_Allgather(collectives, name, _ring(ring_id)), x)


def reducescatter(x: Tensor, ring_id: int = 0, name: str | None = None) -> Tensor:
    """Return this rank's part of the rows of the sum of all ranks' `x`. Its gradient is the allgather."""
    if not is_tensor(x):
        _check_rows("reducescatter", x)
        return _in_program("reducescatter", x, name, ring_id)
    call = rules.Reduction(Sum, 1.0, 1.0, _ring(ring_id), None, "contributors")
    return _recorded(_Reducescatter(collectives, name, call), x)


def broadcast(x: Tensor, root: int = 0, ring_id: int = 0, name: str | None = None) -> Tensor:
    """Return the `x` of rank `root`. Its gradient is the sum of all ranks' for the root, and zeros elsewhere."""
    if isinstance(root, bool) or not isinstance(root, int) or root < 0:
        raise InvalidArgumentError(f"root must be a rank, not {root!r}")
    if not is_tensor(x):
        return _in_program("broadcast", x, name, ring_id, root=root)
    _basics.require_rank(root)
    return _recorded(_Broadcast(collectives, root, name, _ring(ring_id)), x)


def shard_labels(
    labels: Tensor, shape: Tensor, first: int, end: int, n_classes: int, n_shards: int, ring_id: int = 0
) -> list[Tensor]:
    """Return, in a program, which samples of all ranks have their class in a shard, and which are this rank's.

    Args:
        labels: of this rank's samples, int64; their number may differ between ranks.
        shape: that of this rank's features, int64.
        first: the first class of the shard.
        end: the class after its last.
        n_classes: of all shards.
        n_shards: the number of ranks.
        ring_id: the lane.

    Returns:
        Row and column of each sample's class in the shard, column 0 for other classes; 1 if the class is in the shard,
        else 0; 1 for the samples of this rank, else 0; the numbers of these; and the number of samples of this rank and
        of all, at least 1. `exe.run()` fails on all ranks if one gives an invalid class.
    """
    _plugin.require_operators("a sharded layer in a program", programs.in_pir())
    attributes = {
        "name": programs.numbered("shard_labels"),
        "ring_id": programs.check_ring(ring_id),
        "first": first,
        "end": end,
        "n_classes": n_classes,
        "n_shards": n_shards,
    }
    outputs = {"Places": (-1, 2), "IsHere": (-1,), "IsMine": (-1,), "Own": (-1,), "Counts": (2,)}
    return programs.call_of_several("shard_labels", {"X": labels, "Shape": shape}, outputs, "int64", attributes)


def sample_labels(
    places: Tensor, is_here: Tensor, name: str, n_classes: int, n_wanted: int, seed: int, shard: int
) -> list[Tensor]:
    """Return, in a program, the classes of a shard that a run uses, and the labels' positions among these.

    Args:
        places: as of `shard_labels()`.
        is_here: the same.
        name: by which runs are counted; the count and the arguments below determine the sample.
        n_classes: of the shard.
        n_wanted: the number of sampled classes, unless the batch has more.
        seed: the same on all ranks.
        shard: its number.
    """
    _plugin.require_operators("a sharded layer in a program", programs.in_pir())
    attributes = {
        "name": name,
        "ring_id": 0,
        "n_classes": n_classes,
        "n_wanted": n_wanted,
        "seed": seed,
        "shard": shard,
    }
    outputs = {"Chosen": (-1,), "Places": (-1, 2)}
    return programs.call_of_several("sample_labels", {"X": places, "IsHere": is_here}, outputs, "int64", attributes)


# --- in two halves

#: The calls that were started in dygraph, by the identity of each tensor, which is kept.
_started: dict[int, Any] = {}


def allreduce_start(
    x: Sequence[Tensor],
    ring_id: int = 0,
    name: str | None = None,
    op: int = Sum,
    prescale: float = 1.0,
    postscale: float = 1.0,
) -> list[Tensor]:
    """Start to combine the tensors over all ranks, in place, as one operation; return at once.

    They must not be read before `sync_comm()` has returned them.

    Args:
        x: the tensors.
        ring_id: the lane.
        name: of the call.
        op: Sum, Average, Min, Max or Product.
        prescale: the factor of inputs.
        postscale: the factor of results.
    """
    tensors = list(x)
    if not tensors:
        raise InvalidArgumentError("allreduce_start: there are no tensors")
    if is_tensor(tensors[0]):
        handle = ops.grouped_allreduce_async_(
            tensors, op=op, name=name, prescale_factor=prescale, postscale_factor=postscale, process_set=_ring(ring_id)
        )
        _started.update({id(tensor): (tensor, handle) for tensor in tensors})
        return tensors
    _plugin.require_operators("allreduce_start in a program", programs.in_pir())
    attributes = {
        "name": name or programs.numbered("allreduce_start"),
        "ring_id": programs.check_ring(ring_id),
        "op": _NAME_OF[op],
        "prescale": repr(float(prescale)),
        "postscale": repr(float(postscale)),
        "every": 1,
    }
    return list(programs.call("allreduce_start", tensors, attributes))


def sync_comm(x: Sequence[Tensor], names: Sequence[str] = (), ring_id: int = 0) -> list[Tensor]:
    """Wait until the tensors are combined that `allreduce_start()` has returned, and return them.

    A sync in a program blocks a thread of Paddle's executor. Give it the tensors of every start before it in the
    program, also of those that it does not wait for: otherwise a rank may wait here before it has started a call for
    which another rank waits. (The transpilers and DistributedOptimizer do so.)

    Args:
        x: tensors, as `allreduce_start()` has returned them.
        names: of the calls to wait for; needed in programs, ignored in dygraph.
        ring_id: for Paddle's scheduler.
    """
    tensors = list(x)
    if tensors and is_tensor(tensors[0]):
        for tensor in tensors:
            started = _started.pop(id(tensor), None)
            if started is not None:
                started[1].wait()
        return tensors
    if not names:
        raise InvalidArgumentError("sync_comm: names of the calls to wait for are needed in a program")
    _plugin.require_operators("sync_comm in a program", programs.in_pir())
    attributes = {"names": list(names), "ring_id": programs.check_ring(ring_id)}
    return list(programs.call("sync_comm", tensors, attributes))


__all__ = [
    "allgather",
    "allreduce_max",
    "allreduce_min",
    "allreduce_prod",
    "allreduce_start",
    "allreduce_sum",
    "broadcast",
    "reducescatter",
    "sync_comm",
]
