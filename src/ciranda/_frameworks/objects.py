"""Collectives on Python objects: pickled by cloudpickle, sent by the authenticated engine."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np

from ciranda import _basics
from ciranda.errors import InvalidArgumentError
from ciranda.numpy.ops import allgather, broadcast, broadcast_
from ciranda.process_sets import ProcessSet, global_process_set


def _suffixed(name: str | None, suffix: str) -> str | None:
    return None if name is None else f"{name}.{suffix}"


@dataclass(frozen=True)
class _Unpicklable:
    """Sent instead of an object that cannot be pickled: reports the reason to the ranks that wait for the object."""

    text: str


class _Sent:
    """An object as it is sent to other ranks. `check()` raises the pickling error, once they have been informed."""

    def __init__(self, obj: Any, function: str, name: str | None) -> None:
        self._error: Exception | None = None
        try:
            pickled = cloudpickle.dumps(obj)
        except Exception as error:  # whatever the object's own `__reduce__` raises
            self._error = error
            what = function if name is None else f"{function} '{name}'"
            text = f"{what}: rank {_basics.rank()} cannot pickle its {type(obj).__qualname__}: {error}"
            pickled = cloudpickle.dumps(_Unpicklable(text))
        self.data = np.frombuffer(pickled, np.uint8)

    def check(self) -> None:
        if self._error is not None:
            raise self._error


def _received(data: np.ndarray[Any, Any]) -> Any:
    obj = pickle.loads(data.data)
    if isinstance(obj, _Unpicklable):
        raise InvalidArgumentError(obj.text)
    return obj


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Return rank `root_rank`'s `obj` on every rank: itself there, a copy elsewhere.

    `obj` can be any object that cloudpickle can pickle. For other objects, the root raises the pickling error, and the
    other ranks InvalidArgumentError. The other ranks' `obj` is ignored.
    """
    _basics.require_rank(root_rank)
    if _basics.rank() == root_rank:
        sent = _Sent(obj, "broadcast_object", name)
        broadcast(np.int64(sent.data.size), root_rank, _suffixed(name, "size"), process_set)
        broadcast(sent.data, root_rank, _suffixed(name, "data"), process_set)
        sent.check()
        return obj
    n_bytes = int(broadcast(np.int64(0), root_rank, _suffixed(name, "size"), process_set))
    return _received(broadcast_(np.empty(n_bytes, np.uint8), root_rank, _suffixed(name, "data"), process_set))


def allgather_object(obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """Return the list of every rank's `obj`, in rank order.

    `obj` can be any object that cloudpickle can pickle. For other objects, that rank raises the pickling error, and the
    other ranks InvalidArgumentError.
    """
    sent = _Sent(obj, "allgather_object", name)
    sizes = allgather(np.array([sent.data.size], np.int64), _suffixed(name, "size"), process_set)
    everything = allgather(sent.data, _suffixed(name, "data"), process_set)
    sent.check()
    ends = np.cumsum(sizes)
    return [_received(everything[end - size : end]) for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]
