"""Collectives on Keras' values: arrays, numbers, tensors. Also objects and saved models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np

from ciranda._frameworks.compression import Compressor, NoneCompressor
from ciranda._ops import Average, choose_op
from ciranda.errors import InvalidArgumentError
from ciranda.keras import backends, values
from ciranda.keras.marked import is_distributed
from ciranda.keras.wrapping import DistributedOptimizer
from ciranda.numpy import ops
from ciranda.process_sets import ProcessSet, global_process_set

__all__ = [
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_variables",
    "load_model",
    "reducescatter",
]

Array = np.ndarray[Any, Any]


def _array(value: Any) -> Array:
    if hasattr(value, "assign"):
        return values.values_of([value])[0]
    if hasattr(value, "detach"):
        value = value.detach()
        if backends.is_keras_3():  # NumPy by itself cannot make an array of torch's bfloat16
            value = keras.ops.convert_to_numpy(value)
    array = np.asarray(value)
    # Keras converts Python's floats to float32.
    is_python = isinstance(value, (bool, int, float, list, tuple))
    return array.astype(np.float32) if is_python and array.dtype == np.float64 else array


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: type[Compressor] = NoneCompressor,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Return the reduction of all ranks' `value`: their average, or by `op`."""
    how: dict[str, Any] = {
        "op": choose_op(op, average),
        "name": name,
        "prescale_factor": prescale_factor,
        "postscale_factor": postscale_factor,
        "process_set": process_set,
    }
    if compression is NoneCompressor:
        return ops.allreduce(_array(value), **how)
    # Compressors take the backend's tensors.
    reduced = backends.operations().allreduce(backends.tensor_of(_array(value)), compression=compression, **how)
    return _array(reduced)


def allgather(value: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Array:
    """Return the rows of all ranks' `value`, in rank order. Ranks may have different numbers of rows."""
    return ops.allgather(_array(value), name, process_set)


def broadcast(
    value: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Array:
    """Return rank `root_rank`'s `value`."""
    return ops.broadcast(_array(value), root_rank, name, process_set)


def reducescatter(
    value: Any, name: str | None = None, op: int = Average, process_set: ProcessSet = global_process_set
) -> Array:
    """Return this rank's share of the rows of the reduction of all ranks' `value`."""
    return ops.reducescatter(_array(value), name=name, op=op, process_set=process_set)


def broadcast_variables(variables: Iterable[Any], root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """Broadcast the values of rank `root_rank`'s variables, as those of a model or an optimizer."""
    values.broadcast(list(variables), root_rank, "broadcast_variables", process_set)


def broadcast_global_variables(root_rank: int, model: Any) -> None:
    """Broadcast rank `root_rank`'s variables of `model`, and of its optimizer.

    Raises:
        InvalidArgumentError: the model has not been built, and so has no variables yet.
        MismatchError: the ranks' models or optimizers differ, or some have not been built.
    """
    optimizer = getattr(model, "optimizer", None)
    is_built = getattr(model, "built", True)
    found = values.variables_of(model) if is_built else []  # a model of Keras 2 would raise, on this rank alone
    found += values.variables_of(optimizer) if optimizer is not None else []
    values.broadcast(found, root_rank, "broadcast_global_variables")
    if not is_built:
        raise InvalidArgumentError("the model has no variables yet: call model.build(input_shape) before")


def load_model(
    filepath: Any,
    custom_optimizers: Iterable[type] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    compression: type[Compressor] = NoneCompressor,
    legacy_opts: bool = False,
    **options: Any,
) -> Any:
    """Return a saved model whose optimizer, with its saved state, is a DistributedOptimizer.

    It does not matter whether the model was trained with Ciranda.

    Args:
        filepath: as for `keras.models.load_model`.
        custom_optimizers: optimizer classes of your own.
        custom_objects: other classes and functions of your own, by name.
        compression: as for DistributedOptimizer.
        legacy_opts: accepted for compatibility; without effect: the optimizer has the class that was saved.
        options: further arguments for DistributedOptimizer.
    """
    own = {cls.__name__: cls for cls in custom_optimizers or ()}
    model = keras.models.load_model(filepath, custom_objects={**own, **(custom_objects or {})})
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not is_distributed(optimizer):
        model.optimizer = DistributedOptimizer(optimizer, compression=compression, **options)
    return model
