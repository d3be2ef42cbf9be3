"""A rank of an elastic job with process sets: of three ranks, the second is lost, and another takes its place.

python elastic_sets_rank.py FILE: FILE marks that the rank is lost. Each rank says what its sets are, in each world.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ciranda as hvd
from ciranda._frameworks.objects import broadcast_object
from ciranda.elastic import ObjectState, run_fn

MARK = Path(sys.argv[1])
sets = [hvd.ProcessSet([0, 1]), hvd.ProcessSet([1, 2]), hvd.ProcessSet([2]), hvd.ProcessSet([1])]
hvd.init(process_sets=sets)
with pytest.raises(ValueError, match=r"elastic\.run"):
    hvd.allreduce(np.ones(1))  # no world yet


def sums() -> list[float | None]:
    """The sum of the ranks, from 1, of each set of which this rank is a member."""
    found: list[float | None] = []
    for each in sets:
        is_member = each.process_set_id is not None and each.included()
        mine = np.array([hvd.rank() + 1.0])
        found.append(float(hvd.allreduce(mine, op=hvd.Sum, process_set=each)[0]) if is_member else None)
    return found


def train(state: Any) -> None:
    sys.stdout.write(f"size {hvd.size()} rank {hvd.rank()}: {[each.process_set_id for each in sets]} {sums()}\n")
    if state.n_worlds == 0:
        hvd.barrier()  # all have said it before one is lost
    if not MARK.exists() and hvd.rank() == 1:
        MARK.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    while hvd.size() < 3 or state.n_worlds == 0:
        state.n_worlds = 1
        state.commit()


run_fn(train, lambda: None)(ObjectState(broadcast_object, hvd.rank, n_worlds=0))
