"""Traced calls with concrete values, as in the passes of grad outside jit: the engine executes them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ciranda import _basics
from ciranda._ops import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, REDUCE, terms_of
from ciranda._spans import Recorded, profiler
from ciranda.jax import arrays
from ciranda.jax._primitive import Call, collective_p, size_p


def ranks_of(process_set: int) -> list[int]:
    """Return the ranks of the process set that `id_of()` gives this number."""
    return _basics.engine().ranks_of(process_set & 0xFFFFFFFF)


def _run(*tensors: Any, call: Call) -> list[jax.Array]:
    work = [arrays.readable(tensor) for tensor in tensors]
    given = [arrays.new_like(each) for each in work] if call.collective in (ALLREDUCE, BROADCAST, REDUCE) else None
    connected: Any = _basics.engine()
    if profiler.switch._is_profiler_enabled:
        connected = Recorded(connected, call.collective)
    allocated = connected.run(
        terms_of(call.collective, call.op, call.root, call.prescale, call.postscale, call.divides_by_all),
        [arrays.for_engine(each) for each in work] if work else None,
        None if given is None else [arrays.for_engine(each) for each in given],
        call.name,
        call.process_set,
        None if call.collective != ALLTOALL else [list(each) for each in call.splits or [()] * len(work)],
    )
    if call.collective == REDUCE and _basics.rank() != call.root:
        return [arrays.from_memory(np.zeros(each.shape, each.dtype), each) for each in work]
    if given is not None:
        return given
    results = [arrays.from_engine(*pair) for pair in zip(allocated, work, strict=False)]
    if call.splits is not None:
        counts = zip(allocated[len(work) :], work, strict=True)
        results += [arrays.from_memory(np.asarray(each, np.int32), sent) for each, sent in counts]
    return results


collective_p.def_impl(_run)
size_p.def_impl(lambda *, call: arrays.on_device(np.asarray(len(ranks_of(call.process_set)), np.int32)))


def rows_of_ranks_before(rows: Sequence[int], process_set: int) -> list[int]:
    """Return the offset of this rank's rows in the allgathered tensor, for several tensors."""
    mine = np.array([rows], np.int64)
    (everyones,) = _basics.engine().run(terms_of(ALLGATHER), mine, None, None, process_set)
    position = ranks_of(process_set).index(_basics.rank())
    begins: list[int] = everyones[:position].sum(axis=0).tolist()
    return begins
