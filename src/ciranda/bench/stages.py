"""Where the time of a call goes: from the moments at which it passed from one stage to the next. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import accumulate, pairwise

from ciranda.bench.plan import Array

#: What a call's time is made of, on the rank that called last: it waits for nobody, so all of it is work, but for
#: "others", the time from its own return to that of the last rank.
STAGES = {
    "python": "before the engine is called",
    "enqueue": "until the engine looks at the request",
    "ready": "until this rank has reported it ready, with its data for other ranks",
    "agree": "until this rank knows that all ranks execute it",
    "execute": "until the result is there",
    "return": "until the waiting thread is back, and the call has returned",
    "others": "until the last rank has returned",
}


def durations_ns(moments: Array) -> dict[str, Array]:
    """How long each stage of each call took: integer arrays by the names of STAGES, whose sums are the calls' times.

    Args:
        moments: integers (rank, moment, call), in nanoseconds of a clock that all ranks share. The moments: the call
            begins, submitted, taken in, ready, agreed on, done, the call has returned.
    """
    starts, ends = moments[:, 0], moments[:, -1]
    n_calls = moments.shape[2]
    last = moments[starts.argmax(axis=0), :, range(n_calls)].T
    found = (*(later - earlier for earlier, later in pairwise(last)), ends.max(0) - last[-1])
    return dict(zip(STAGES, found, strict=True))


def of_blocking_call(at_ns: Sequence[int]) -> list[int]:
    """Of what the engine has recorded: submitted, taken in, ready, agreed on, done. A skipped stage took no time."""
    submitted, taken, ready, agreed, _, done = at_ns
    return list(accumulate((submitted, taken, ready, agreed, done), max))


def medians_us(durations: dict[str, Array]) -> dict[str, float]:
    """The median of each stage over the calls."""
    return {stage: statistics.median(each.tolist()) / 1e3 for stage, each in durations.items()}
