"""Python objects from rank to rank: pickled by cloudpickle, carried by the authenticated engine."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle
import numpy as np

from ciranda import _basics
from ciranda.numpy.ops import allgather, broadcast, broadcast_
from ciranda.process_sets import ProcessSet, global_process_set


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
