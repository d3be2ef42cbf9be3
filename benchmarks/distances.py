"""How far apart the cores of neighbouring ranks are just now: near where they share a cache, else far.

A virtual machine's cores move from one to the other. What is timed between two looks is near or far if both looks say
so, and belongs to neither if they differ.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np

import ciranda
from ciranda import _core

NEAR, FAR, UNKNOWN = "near", "far", "unknown"

_LINE_BYTES = 128
_SECONDS = 10.0  # that a rank waits for its neighbour


def of_window(before_ns: float | None, after_ns: float | None) -> str:
    """Of what was timed between two looks."""
    if before_ns is None or after_ns is None:
        return UNKNOWN
    before, after = _core.distance_of(before_ns), _core.distance_of(after_ns)
    return before if before == after else UNKNOWN


class Distances:
    """Sends a cache line to and fro between each rank and the next. All ranks make one, and then look() together."""

    def __init__(self, folder: str) -> None:
        rank, size = ciranda.rank(), ciranda.size()
        # Where ranks outnumber cores, a line waits for the scheduler.
        self._is_possible = 1 < size <= (os.cpu_count() or 1)
        fd = os.open(Path(folder) / "lines", os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(fd, size * _LINE_BYTES)
        lines = np.frombuffer(mmap.mmap(fd, size * _LINE_BYTES), dtype=np.uint8).reshape(size, _LINE_BYTES)
        os.close(fd)
        self._to_last = _core.LineProbe(lines[rank - 1], is_first=True) if rank > 0 else None
        self._to_next = _core.LineProbe(lines[rank], is_first=False) if rank + 1 < size else None
        self._before_ns = self._one_way_ns()

    def look(self) -> str:
        """Of what was timed since the last look; the same on all ranks."""
        before_ns, self._before_ns = self._before_ns, self._one_way_ns()
        return of_window(before_ns, self._before_ns)

    def _one_way_ns(self) -> float | None:
        """Of the neighbours that are farthest apart. None: some have not met, and will not any more."""
        if not self._is_possible:
            return None
        found = [probe.one_way_ns(_SECONDS) for probe in (self._to_last, self._to_next) if probe is not None]
        slowest = max(float("inf") if ns is None else ns for ns in found)
        slowest = float(ciranda.allreduce(np.array([slowest]), name="distances", op=ciranda.Max)[0])
        self._is_possible = slowest < float("inf")
        return slowest if self._is_possible else None
