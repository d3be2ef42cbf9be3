"""When blocking calls pass from one stage to the next: in order on a rank, and in an order that holds across ranks."""

from __future__ import annotations

import time

import numpy as np
import pytest
from ranks import Ranks

import ciranda as hvd
from ciranda._basics import engine

pytestmark = pytest.mark.multiprocess

Moments = list[tuple[int, int, int, int, int, int]]
COUNTS = (1, 1, 1, 4096, 300_000)  # the first two of a name are agreed on otherwise than those that follow


def _profiled_calls() -> tuple[int, Moments, int, Moments]:
    """The moments of a few calls, between two of the clock; and those of one more call, which is not asked for."""
    engine().start_profile()
    begin = time.monotonic_ns()
    for count in COUNTS:
        hvd.allreduce_(np.ones(count, np.float32), name=f"profiled.{count}")
    hvd.synchronize(hvd.allreduce_async_(np.ones(3), name="not.blocking"))
    moments = engine().take_profile()
    end = time.monotonic_ns()
    hvd.barrier()
    return begin, moments, end, engine().take_profile()


def test_the_moments_of_blocking_calls(circle: Ranks) -> None:
    answers = circle.run(_profiled_calls)
    for begin, moments, end, more in answers:
        assert len(moments) == len(COUNTS)
        flat = [begin, *(moment for call in moments for moment in call), end]
        assert flat == sorted(flat)
        assert more == []
    for calls in zip(*(moments for _, moments, _, _ in answers), strict=True):
        last_ready = max(ready for _, _, ready, _, _, _ in calls)
        assert all(agreed >= last_ready for _, _, _, agreed, _, _ in calls)
