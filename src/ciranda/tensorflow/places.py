"""The rank of this process and the sizes, as ops: read when a graph runs, so they stay correct in later worlds."""

from __future__ import annotations

from typing import Any

from ciranda.tensorflow import _xla
from ciranda.tensorflow._autograph import unconverted
from ciranda.tensorflow._execution import is_building_graph, perform

__all__ = [
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "size_op",
]

_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE, _IS_INCLUDED, _RANK_IN_SET = range(6)


def _place(place: int, process_set_id: int, name: str | None) -> Any:
    # A lane has the ranks of its set.
    process_set = process_set_id & 0xFFFFFFFF
    if is_building_graph() and _xla.is_compiling():
        return _xla.place(place, process_set)
    attributes = {"place": place, "process_set": process_set}
    return perform("CirandaPlace", {}, attributes, 1, name)[0]


@unconverted
def rank_op(name: str | None = None) -> Any:
    """Return this process's rank when it runs: a scalar int32 tensor."""
    return _place(_RANK, 0, name)


@unconverted
def local_rank_op(name: str | None = None) -> Any:
    """Return this process's rank on its host when it runs: a scalar int32 tensor."""
    return _place(_LOCAL_RANK, 0, name)


@unconverted
def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return the number of ranks of the process set when it runs: a scalar int32 tensor."""
    return _place(_SIZE, process_set_id, name)


@unconverted
def local_size_op(name: str | None = None) -> Any:
    """Return the number of ranks on this host when it runs: a scalar int32 tensor."""
    return _place(_LOCAL_SIZE, 0, name)


@unconverted
def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return 1 if this process is in the process set when it runs, else 0: a scalar int32 tensor."""
    return _place(_IS_INCLUDED, process_set_id, name)


@unconverted
def rank_in_set_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return this process's position in the process set when it runs, -1 outside: a scalar int32 tensor."""
    return _place(_RANK_IN_SET, process_set_id, name)
