"""The collectives on TensorFlow's tensors. Names, arguments and defaults are those of `horovod.tensorflow`.

Each is an op, which runs eagerly, as a node of a graph (`tf.function`), where independent ones run in any order, or
compiled (`jit_compile=True`). Tensors are in CPU memory, have any shape and a dtype that the engine supports: bool, the
integers of 8 to 64 bits, float16, bfloat16, float32, float64, complex64, complex128.

`name` identifies the call across ranks: all ranks must use the same one. In a graph it is the node's name, which begins
with the name scope unless `ignore_name_scope` is set, and ends with a number if another node has that name already; a
call without a name is named after its tensor. Eager calls without a name must be made in the same order on all ranks.

Every call may raise: `tf.errors.InvalidArgumentError` for an invalid call, or without `init()`;
`tf.errors.FailedPreconditionError` if ranks disagree about shape, dtype, operation, root, factors or kind of
collective; `tf.errors.AbortedError` if a rank has died or did not call in time, or the world was shut down.
`as_ciranda_error()` returns the corresponding error of `ciranda.errors`. Errors before an op is created are
InvalidArgumentErrors of `ciranda.errors` (ValueErrors).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf

from ciranda import _ops
from ciranda._frameworks.compression import Compressor, NoneCompressor
from ciranda._frameworks.variables import no_variables
from ciranda._ops import Average, Divisor, choose_op
from ciranda.errors import InvalidArgumentError
from ciranda.process_sets import ProcessSet, global_process_set
from ciranda.tensorflow import gradients as _gradients  # noqa: F401 (registers them)
from ciranda.tensorflow import sparse, weighted
from ciranda.tensorflow._autograph import unconverted
from ciranda.tensorflow._execution import Call, is_building_graph, is_building_session_graph, run

__all__ = [
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_alltoall",
    "grouped_broadcast",
    "grouped_reducescatter",
    "join",
    "reducescatter",
]

#: A tensor, or what `tf.convert_to_tensor` takes.
Tensor = Any


def _on(device: str) -> AbstractContextManager[Any]:
    return tf.device(device) if device else nullcontext()


def _dense(tensors: Sequence[Tensor]) -> list[Tensor]:
    if len(tensors) == 0:
        raise InvalidArgumentError("a group must have at least one tensor")
    return [tf.convert_to_tensor(tensor) for tensor in tensors]


def _compressed(op_type: str, tensors: Sequence[Tensor], call: Call, compression: type[Compressor]) -> list[Tensor]:
    pairs = [compression.compress(tensor) for tensor in _dense(tensors)]
    outputs = run(op_type, [tensor for tensor, _ in pairs], call)
    return [compression.decompress(output, context) for output, (_, context) in zip(outputs, pairs, strict=True)]


def _weighted(
    tensors: Sequence[Tensor], weight: Any, call: Call, device: str, compression: type[Compressor]
) -> list[Tensor]:
    if compression is not NoneCompressor or any(isinstance(tensor, tf.IndexedSlices) for tensor in tensors):
        raise InvalidArgumentError("weights go neither with compression nor with IndexedSlices here")
    with _on(device):
        return weighted.allreduce(_dense(tensors), weight, call)


@unconverted
def allreduce(
    tensor: Tensor,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = NoneCompressor,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    divisor: Divisor = "contributors",
    weight: Any = None,
) -> Tensor:
    """Combine `tensor` over all ranks, element by element; every rank gets the same new tensor.

    Args:
        tensor: the same shape and dtype on every rank; or `tf.IndexedSlices`, whose rows are gathered (with op=Average
            or Sum), and may differ between ranks. Of integers, where they are averaged or scaled, the rows of an index
            are added first, so that the result is that of a tensor.
        average: deprecated, use `op`.
        device_dense: where to run; "" for where the tensor is.
        device_sparse: the same for IndexedSlices.
        compression: the compressor, as Compression.none or Compression.fp16 or a class of your own.
        op: Average (the default), Sum, Min, Max or Product; BitwiseAnd, BitwiseOr or BitwiseXor of integers;
            LogicalAnd, LogicalOr or LogicalXor of bool; Adasum of floating-point types. Averages are divided when the
            op runs, by the number of ranks at that time; those of integers round toward zero.
        prescale_factor: multiplies every input before they are combined.
        postscale_factor: multiplies the result.
        name: see the module.
        process_set: the ranks that take part; all, if not given.
        ignore_name_scope: see the module.
        divisor: the divisor of an average while some ranks have joined: "contributors", the number of ranks that take
            part; or "world", that of all ranks of the process set.
        weight: a number, or a scalar tensor: the weight of this rank's tensor in the average, as the size of its batch.
            All ranks must give one, or none. Only with op=Average, of floating-point and complex tensors, without
            compression.

    Raises:
        NotSupportedError: (a ValueError and NotImplementedError) `tf.IndexedSlices` with another op.
    """
    chosen = choose_op(op, average)
    call = Call(name, chosen, -1, prescale_factor, postscale_factor, process_set, divisor, ignore_name_scope)
    if weight is not None:
        return _weighted([tensor], weight, call, device_dense, compression)[0]
    if isinstance(tensor, tf.IndexedSlices):
        with _on(device_sparse):
            return sparse.allreduce(tensor, call, compression)
    with _on(device_dense):
        return _compressed("CirandaAllreduce", [tensor], call, compression)[0]


@unconverted
def grouped_allreduce(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = NoneCompressor,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
    divisor: Divisor = "contributors",
    weight: Any = None,
) -> list[Tensor]:
    """Combine several tensors as one request: all complete or all fail. Otherwise as `allreduce()`.

    IndexedSlices among them are gathered one by one.
    """
    chosen = choose_op(op, average)
    call = Call(name, chosen, -1, prescale_factor, postscale_factor, process_set, divisor, ignore_name_scope)
    if weight is not None:
        return _weighted(tensors, weight, call, device_dense, compression)
    sparse_ones = [index for index, tensor in enumerate(tensors) if isinstance(tensor, tf.IndexedSlices)]
    dense = [index for index in range(len(tensors)) if index not in sparse_ones]
    results = list(tensors)
    if dense or not sparse_ones:
        with _on(device_dense):
            reduced = _compressed("CirandaAllreduce", [tensors[index] for index in dense], call, compression)
        for index, result in zip(dense, reduced, strict=True):
            results[index] = result
    for index in sparse_ones:
        # One call has the group's name, and the others begin behind it: if a rank has something else to combine, or
        # nothing, that call fails, and a graph would go on to wait for the others, which that rank never makes.
        first = None if index == sparse_ones[0] and not dense else results[(dense or sparse_ones)[0]]
        own = call if name is None or first is None else call._replace(name=f"{name}.{index}")
        with _on(device_sparse), tf.control_dependencies([] if first is None else tf.nest.flatten(first, True)):
            results[index] = sparse.allreduce(tensors[index], own, compression)
    return results


@unconverted
def allgather(
    tensor: Tensor,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Join the tensors of all ranks along dimension 0, in rank order; only dimension 0 may differ between ranks."""
    return grouped_allgather([tensor], name, ignore_name_scope, process_set)[0]


@unconverted
def grouped_allgather(
    tensors: Sequence[Tensor],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """`allgather()` of several tensors as one request."""
    call = Call(name, process_set=process_set, ignore_name_scope=ignore_name_scope)
    return run("CirandaAllgather", _dense(tensors), call)


@unconverted
def broadcast(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Return the tensor of rank `root_rank`, a rank of the world. All ranks must give the same shape."""
    return grouped_broadcast([tensor], root_rank, name, ignore_name_scope, process_set)[0]


@unconverted
def grouped_broadcast(
    tensors: Sequence[Tensor],
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """`broadcast()` of several tensors as one request."""
    call = Call(name, root_rank=root_rank, process_set=process_set, ignore_name_scope=ignore_name_scope)
    return run("CirandaBroadcast", _dense(tensors), call)


@unconverted
def broadcast_(
    variables: Sequence[Any], root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Assign rank `root_rank`'s values to the variables, as one request.

    Returns the variables; in a graph of TensorFlow 1, tensors whose evaluation assigns the values.

    Args:
        variables: `tf.Variable` or Keras's variables, which have values; the same on all ranks.
        root_rank: counted among all ranks.
        name: see the module.
        process_set: the ranks that take part; all, if not given.
    """
    variables = list(variables)
    given = variables or [tf.constant(no_variables(name or "broadcast_"))]
    values = grouped_broadcast(given, root_rank, name, False, process_set)
    assigned = [variable.assign(value) for variable, value in zip(variables, values, strict=False)] or values
    return assigned if is_building_session_graph() else variables


@unconverted
def alltoall(
    tensor: Tensor,
    splits: Tensor | None = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send different rows of `tensor` to each rank; return the received rows, in rank order.

    Args:
        tensor: of the same shape on every rank except for its first dimension.
        splits: the number of rows for each rank: whole numbers whose sum is the first dimension; None: equal parts.
        name: see the module.
        ignore_name_scope: see the module.
        process_set: the ranks that take part; all, if not given.

    Returns:
        The received rows, in rank order; with `splits`, a pair of these and the number of rows from each rank, in the
        dtype of `splits`.
    """
    outputs, received = _alltoall([tensor], None if splits is None else [splits], name, ignore_name_scope, process_set)
    return outputs[0] if splits is None else (outputs[0], received[0])


@unconverted
def grouped_alltoall(
    tensors: Sequence[Tensor],
    splits: Sequence[Tensor] | None = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """`alltoall()` of several tensors as one request. Returns what that returns for each."""
    outputs, received = _alltoall(tensors, splits, name, ignore_name_scope, process_set)
    return outputs if splits is None else list(zip(outputs, received, strict=True))


def _alltoall(
    tensors: Sequence[Tensor],
    splits: Sequence[Tensor] | None,
    name: str | None,
    ignore_name_scope: bool,
    process_set: ProcessSet,
) -> tuple[list[Tensor], list[Tensor]]:
    work = _dense(tensors)
    if splits is not None and len(splits) != len(work):
        raise InvalidArgumentError(f"there are {len(work)} tensors but splits for {len(splits)}")
    equal_parts = [tf.zeros([0], tf.int32)] * len(work)
    each = equal_parts if splits is None else [tf.convert_to_tensor(one) for one in splits]
    if any(one.dtype not in (tf.int32, tf.int64) for one in each):
        raise InvalidArgumentError(
            f"splits must be whole numbers, one for each rank; got {[one.dtype for one in each]}"
        )
    if len({one.dtype for one in each}) > 1:
        each = [tf.cast(one, tf.int64) for one in each]
    call = Call(name, process_set=process_set, ignore_name_scope=ignore_name_scope)
    outputs = run("CirandaAlltoall", work, call, each)
    return outputs[: len(work)], outputs[len(work) :]


@unconverted
def reducescatter(
    tensor: Tensor,
    device_dense: str = "",
    compression: type[Compressor] = NoneCompressor,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divisor: Divisor = "contributors",
) -> Tensor:
    """Combine `tensor` over all ranks, as `allreduce()` does, and return this rank's part of the rows.

    The parts are equal, and the first `rows mod ranks` ranks get one row more.
    """
    call = Call(name, op, -1, prescale_factor, postscale_factor, process_set, divisor, ignore_name_scope)
    with _on(device_dense):
        return _compressed("CirandaReducescatter", [tensor], call, compression)[0]


@unconverted
def grouped_reducescatter(
    tensors: Sequence[Tensor],
    device_dense: str = "",
    compression: type[Compressor] = NoneCompressor,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    ignore_name_scope: bool = False,
    divisor: Divisor = "contributors",
) -> list[Tensor]:
    """`reducescatter()` of several tensors as one request."""
    call = Call(name, op, -1, prescale_factor, postscale_factor, process_set, divisor, ignore_name_scope)
    with _on(device_dense):
        return _compressed("CirandaReducescatter", tensors, call, compression)


@unconverted
def join(device: int = -1, process_set: ProcessSet = global_process_set) -> Any:
    """Declare that this rank has no more work, and wait until all ranks have joined; see `ciranda.join`.

    In a graph it is a node, which does not wait for the collectives before it: let it depend on their results.
    """
    if not is_building_graph():
        return _ops.join(device, process_set)
    return run("CirandaJoin", [], Call(process_set=process_set))[0]


@unconverted
def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Return once every rank of the process set has called this.

    In a graph it is a node, which does not wait for the collectives before it: let it depend on their results.
    """
    if not is_building_graph():
        return _ops.barrier(process_set)
    run("CirandaBarrier", [], Call(process_set=process_set))
    return None
