"""Process sets of mpi4py's communicators: every rank gives its own, and each of these becomes a set."""

from __future__ import annotations

from ciranda import _basics
from ciranda._frameworks.objects import allgather_object
from ciranda.engines.loaded_mpi import is_null
from ciranda.process_sets import ProcessSet, add_process_set


def add(process_set: ProcessSet) -> None:
    """Add the sets that the ranks give here, in the order of their lowest ranks. All ranks of the world call this."""
    communicator, process_set._communicator = process_set._communicator, None
    assert communicator is not None
    mine = [] if is_null(communicator) else sorted(communicator.allgather(_basics.rank()))
    process_set._ranks = mine
    for ranks in sorted({tuple(ranks) for ranks in allgather_object(mine) if ranks}):
        add_process_set(process_set if list(ranks) == mine else list(ranks))
