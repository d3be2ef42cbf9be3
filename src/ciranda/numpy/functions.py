"""Python objects from rank to rank: pickled by cloudpickle, carried by the authenticated engine."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt

from ciranda import _basics, _consistency
from ciranda.numpy.arrays import for_engine, readable
from ciranda.numpy.ops import allgather, broadcast, broadcast_
from ciranda.process_sets import ProcessSet, global_process_set


def empty(shape: int | Sequence[int], dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
    """Return a new array in memory that the ranks of a host share, and combine without a copy. All ranks must call it.

    What `allreduce_` or `grouped_allreduce_` changes in it is reduced where it lies, from about 16 KiB on. On several
    hosts, or where `/dev/shm` has no room, it is an array like any other, on all ranks alike. It holds zeros.

    Args:
        shape: its shape; ranks need not agree.
        dtype: a type of NumPy's own.
    """
    n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory, _ = _basics.engine().allocate_shared(n_bytes, np.empty(0, np.uint8))
    result: npt.NDArray[Any] = memory.view(dtype).reshape(shape)
    return result


def _suffixed(name: str | None, suffix: str) -> str | None:
    return None if name is None else f"{name}.{suffix}"


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Return rank `root_rank`'s `obj` on every rank: itself there, a copy elsewhere.

    Anything that cloudpickle can pickle will do. What the other ranks give as `obj` is ignored.
    """
    _basics.require_rank(root_rank)
    is_root = _basics.rank() == root_rank
    data = np.frombuffer(cloudpickle.dumps(obj), np.uint8) if is_root else np.empty(0, np.uint8)
    n_bytes = int(broadcast(np.int64(data.size), root_rank, _suffixed(name, "size"), process_set))
    if is_root:
        broadcast(data, root_rank, _suffixed(name, "data"), process_set)
        return obj
    received = broadcast_(np.empty(n_bytes, np.uint8), root_rank, _suffixed(name, "data"), process_set)
    return pickle.loads(received.data)


def allgather_object(obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """Return the list of every rank's `obj`, in rank order. Anything that cloudpickle can pickle will do."""
    data = np.frombuffer(cloudpickle.dumps(obj), np.uint8)
    sizes = allgather(np.array([data.size], np.int64), _suffixed(name, "size"), process_set)
    everything = allgather(data, _suffixed(name, "data"), process_set)
    ends = np.cumsum(sizes)
    return [
        pickle.loads(everything[end - size : end].data) for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)
    ]


def check_consistency(arrays: Mapping[str, npt.ArrayLike], process_set: ProcessSet = global_process_set) -> None:
    """Return if every rank has the same arrays, bit for bit. They stay where they are: only checksums travel.

    Args:
        arrays: by name, in the same order on every rank.
        process_set: the ranks that compare, all of which must call this.

    Raises:
        MismatchError: on every rank. It names the first array that differs, and the ranks where it does.
    """
    named = []
    for name, value in arrays.items():
        array = readable(value)
        named.append(_consistency.Named(name, f"{array.dtype} {list(array.shape)}", for_engine(array)))
    _consistency.compare(named, process_set)
