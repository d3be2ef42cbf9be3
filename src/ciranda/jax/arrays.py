"""Conversion of JAX arrays to the engine's tensors, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import experimental

from ciranda import _core
from ciranda._spans import Described, profiler
from ciranda.errors import InvalidArgumentError
from ciranda.jax._plugin import PLATFORM
from ciranda.numpy.arrays import for_engine as numpy_for_engine

#: A tensor argument: anything that `jax.numpy.asarray` takes.
ArrayLike = Any
#: The number of rows for each rank.
Splits = Any

# XLA uses memory of this alignment, in bytes, without a copy.
_ALIGNMENT = 64

# It was experimental before it was jax's own.
_enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else experimental.enable_x64

_NUMBER_OF = {
    np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name): number for name, number in _core.DATA_TYPES.items()
}


def as_wide_as(dtype: Any) -> AbstractContextManager[Any]:
    """Let arrays of this dtype be made, also if it has 64 bits and jax_enable_x64 is off."""
    return _enable_x64(True) if np.dtype(dtype).itemsize >= 8 else nullcontext()


def readable(tensor: ArrayLike) -> jax.Array:
    """Return `tensor` as an array in the memory of one CPU device, row by row, which is computed when this returns.

    Raises:
        InvalidArgumentError: it is a traced value, on another device, or on several.
    """
    if isinstance(tensor, jax.core.Tracer):
        raise InvalidArgumentError(
            f"{tensor.dtype} of shape {list(tensor.shape)} is traced, by jit or another transformation, where there "
            "are no handles: call the function of the same name without _async; reduce, gather, scatter and messages "
            "are for values outside jit only"
        )
    array = tensor if isinstance(tensor, jax.Array) else jnp.asarray(tensor)
    devices = array.devices()
    (first,) = list(devices)[:1]
    if first.platform != PLATFORM or len(devices) > 1:
        where = ", ".join(sorted(map(str, devices)))
        raise InvalidArgumentError(
            f"the array is on {where}, but outside jit only arrays on one CPU device are supported: make the call in "
            "a function that jax.jit compiles, or give it jax.device_get(array)"
        )
    return _row_major(communicable(array)).block_until_ready()


def is_on_cpu(array: jax.Array) -> bool:
    """Whether the array, which is not traced, is in memory of the host."""
    return all(device.platform == PLATFORM for device in array.devices())


def readable_content(array: jax.Array) -> Any:
    """Return the engine's argument for what an array holds, wherever it is."""
    return for_engine(readable(array)) if is_on_cpu(array) else numpy_for_engine(np.asarray(array))


def _row_major(array: jax.Array) -> jax.Array:
    """Return the array, or a row-major copy: a program may leave its result in another layout."""
    if array.ndim < 2:
        return array
    # Older versions name the format `layout`.
    layout: Any = array.format.layout if hasattr(array, "format") else array.layout.device_local_layout
    is_row_major = layout is None or layout.major_to_minor == tuple(range(array.ndim))
    return array if is_row_major else jnp.copy(array)


def is_communicable(dtype: Any) -> bool:
    """Whether the engine knows a dtype."""
    return dtype in _NUMBER_OF


def communicable(array: jax.Array) -> jax.Array:
    """Return the array. Raises InvalidArgumentError if the engine does not know its dtype."""
    if not is_communicable(array.dtype):
        raise InvalidArgumentError(
            f"an array of dtype {array.dtype} cannot be communicated; supported: {', '.join(_core.DATA_TYPES)}"
        )
    return array


def writable(tensor: jax.Array) -> jax.Array:
    """Raise InvalidArgumentError, for calls in place."""
    raise InvalidArgumentError(
        f"JAX arrays do not change: use the function that returns a new one (got {type(tensor).__name__})"
    )


def for_engine(array: jax.Array) -> _core.TensorDescription:
    """Return a description by address, which keeps the array alive."""
    what = (array.unsafe_buffer_pointer(), array.shape, _NUMBER_OF[np.dtype(array.dtype)], array)
    if not profiler.switch._is_profiler_enabled:
        return _core.TensorDescription(*what)
    description = Described(*what)
    description.dtype, description.shape = array.dtype, array.shape
    return description


def on_device(memory: np.ndarray[Any, Any], device: Any = None) -> jax.Array:
    """Return a NumPy array as a JAX array on a device, or on the default one: without a copy, if it is aligned.

    Its dtype stays as it is, also where jax_enable_x64 is off: an array of 64 bits that was made before keeps its own.
    The transfer is explicit: `jax.transfer_guard("disallow")` allows it.
    """
    with as_wide_as(memory.dtype):
        return jax.device_put(memory, device)


def from_memory(memory: np.ndarray[Any, Any], like: jax.Array) -> jax.Array:
    """Return a NumPy array as a JAX array on the device of `like`: without a copy, if it is aligned."""
    (device,) = like.devices()
    return on_device(memory, device).block_until_ready()


def cast(array: jax.Array, dtype: Any) -> jax.Array:
    """Return the array, which may be traced, in this dtype, also if it has 64 bits and jax_enable_x64 is off."""
    with as_wide_as(dtype):
        return array.astype(dtype)


def new_like(array: jax.Array) -> jax.Array:
    """Return a new array of the same shape and dtype, which the engine writes before it is returned to the user."""
    n_bytes = math.prod(array.shape) * array.dtype.itemsize
    memory = np.empty(n_bytes + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    return from_memory(memory[begin : begin + n_bytes].view(array.dtype).reshape(array.shape), array)


def from_engine(output: Any, array: jax.Array) -> jax.Array:
    """Return the engine's output as an array of the dtype of its input."""
    return from_memory(output.view(array.dtype), array)


def share_memory(one: jax.Array, other: jax.Array) -> bool:
    """Whether two arrays have memory in common."""
    begin, end = one.unsafe_buffer_pointer(), one.unsafe_buffer_pointer() + one.nbytes
    return bool(begin < other.unsafe_buffer_pointer() + other.nbytes and other.unsafe_buffer_pointer() < end)


def counts(numbers: Any, splits: Splits | None) -> jax.Array:
    """Return numbers of rows as an array of the dtype of `splits`; int32 for a list or None."""
    wanted = np.dtype(np.int32) if splits is None or isinstance(splits, Sequence) else np.asarray(splits).dtype
    dtype = jax.dtypes.canonicalize_dtype(wanted)
    return numbers.astype(dtype) if isinstance(numbers, jax.Array) else on_device(np.asarray(numbers, dtype))
