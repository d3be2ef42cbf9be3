"""The same parameters and objects on every rank; errors of compiled programs as classes of `ciranda.errors`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ciranda import _basics, _consistency, _ops, errors
from ciranda._frameworks.error_classes import OF_STATUS, converted
from ciranda._frameworks.objects import allgather_object, broadcast_object
from ciranda._ops import Handle
from ciranda.jax import arrays
from ciranda.jax.ops import broadcast_async
from ciranda.numpy.arrays import for_engine as numpy_for_engine
from ciranda.numpy.arrays import readable as numpy_readable
from ciranda.numpy.ops import broadcast_async as broadcast_numpy_async
from ciranda.process_sets import ProcessSet, global_process_set

__all__ = [
    "allgather_object",
    "broadcast_object",
    "broadcast_parameters",
    "check_consistency",
    "ciranda_errors",
    "join",
    "join_async",
]

#: The message of a program's error begins with the name of its status.
_STATUSES = ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "INTERNAL")
_CLASSES = dict(zip(_STATUSES, OF_STATUS, strict=True))
_OURS = "ciranda.jax: "


def is_key(leaf: Any) -> bool:
    """Whether the leaf is a key of `jax.random`, which has a dtype of its own."""
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _of_number(leaf: Any) -> np.ndarray[Any, Any] | None:
    """Return a number of Python or NumPy as an array; None for other objects, or if it does not fit an array."""
    if not isinstance(leaf, (int, float, complex, np.generic)):
        return None
    array = np.asarray(leaf)
    return array if array.dtype.kind in "biufc" else None


def _start(leaf: Any, root_rank: int, name: str, process_set: ProcessSet) -> Any:
    """Return a handle of the root's leaf, or the leaf itself if it is neither an array nor a number."""
    if is_key(leaf):
        handle = broadcast_async(jax.random.key_data(leaf), root_rank, name, process_set)
        return handle.then(lambda data: jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf)))
    if isinstance(leaf, jax.Array) and not arrays.is_on_cpu(leaf):
        handle = broadcast_numpy_async(np.asarray(leaf), root_rank, name, process_set)
        return handle.then(lambda content: arrays.on_device(content, leaf.sharding))
    if isinstance(leaf, jax.Array):
        return broadcast_async(leaf, root_rank, name, process_set)
    if isinstance(leaf, np.ndarray):
        return broadcast_numpy_async(leaf, root_rank, name, process_set)
    number = _of_number(leaf)
    if number is None:
        return leaf
    handle = broadcast_numpy_async(number, root_rank, name, process_set)
    return handle.then(lambda found: found[()] if isinstance(leaf, np.generic) else type(leaf)(found.item()))


def broadcast_parameters(params: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> Any:
    """Return `params` with the values of rank `root_rank`. For parameters and optimizer states, outside jit.

    Arrays on a GPU are copied to the host for it, and back.

    Args:
        params: a pytree, alike on all ranks. Arrays, keys of `jax.random` and numbers, such as the step of a state, are
            broadcast; other leaves (strings, numbers of more than 64 bits) are unchanged.
        root_rank: the rank whose values are taken.
        process_set: the ranks that take part.

    Raises:
        InvalidArgumentError: there is no such rank.
        MismatchError: the ranks' parameters differ; the message names the parameter.
    """
    _basics.require_rank(root_rank)
    named, structure = jax.tree_util.tree_flatten_with_path(params)
    started = [
        _start(leaf, root_rank, f"broadcast_parameters{jax.tree_util.keystr(path)}", process_set)
        for path, leaf in named
    ]
    results = [each.wait() if isinstance(each, Handle) else each for each in started]
    return jax.tree_util.tree_unflatten(structure, results)


def check_consistency(params: Any, process_set: ProcessSet = global_process_set) -> None:
    """Raise MismatchError unless every rank has the same arrays and numbers, bit for bit. Only checksums are sent.

    Args:
        params: a pytree. Leaves that are neither arrays nor numbers are ignored.
        process_set: the ranks that compare, all of which must call this.

    Raises:
        MismatchError: on every rank. It names the first array that differs, and the ranks where it does.
    """
    named = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        number = _of_number(leaf)
        array = jax.random.key_data(leaf) if is_key(leaf) else leaf if number is None else number
        if isinstance(array, (jax.Array, np.ndarray)):
            readable: Any = array
            if isinstance(array, jax.Array):
                readable = arrays.readable_content(array)
            else:
                readable = numpy_for_engine(numpy_readable(array))
            what = f"{array.dtype} {list(array.shape)}"
            named.append(_consistency.Named(jax.tree_util.keystr(path), what, readable))
    _consistency.compare(named, process_set)


def as_ciranda_error(error: Exception) -> errors.CirandaError | None:
    """Return the error of `ciranda.errors` for `error`, with its message; None if no collective has failed."""
    kind, _, message = str(error).partition(": ")
    if not isinstance(error, jax.errors.JaxRuntimeError) or kind not in _CLASSES or _OURS not in message:
        return None
    return _CLASSES[kind](message[message.index(_OURS) + len(_OURS) :])


@contextmanager
def ciranda_errors() -> Iterator[None]:
    """Convert the error of a compiled program, if one of its collectives failed, to a class of `ciranda.errors`.

    A program raises a JaxRuntimeError when its result is read. Use this as a context manager, or as a decorator of a
    function, such as one that `ciranda.elastic.run` calls again after a rank is lost:

        @ciranda.elastic.run
        @ciranda.jax.ciranda_errors()
        def train(state): ...
    """
    with converted(as_ciranda_error):
        yield


def join_async(process_set: ProcessSet = global_process_set) -> Handle[int]:
    """Start `join()`. `synchronize(handle)` returns the rank that was the last to join."""
    # JAX runs programs asynchronously; a failed one raises when its result is read.
    with suppress(jax.errors.JaxRuntimeError):
        jax.effects_barrier()
    return _ops.join_async(process_set)


def join(device: int = -1, process_set: ProcessSet = global_process_set) -> int:
    """Declare that this rank has no more work, and wait until all ranks have joined; see `ciranda.join`.

    First waits for the programs that this thread has called: this rank still contributes to their collectives.

    Args:
        device: ignored; accepted for scripts written for Horovod.
        process_set: the set whose collectives this rank leaves out.

    Returns:
        The rank that was the last to join, counted in the whole world.
    """
    return join_async(process_set).wait()
