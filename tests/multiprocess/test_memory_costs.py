"""What ranks measure of their shared memory at init(), and what they do with it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from ranks import Ranks

from ciranda import _core
from ciranda._basics import engine

pytestmark = pytest.mark.multiprocess

_PATIENCE = 120  # seconds: a rank that gets no core in time measures nothing


@contextlib.contextmanager
def _ahead_of_others() -> Iterator[None]:
    """What is started here gets a core whenever it wants one, where that is allowed."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _seen() -> dict[str, Any]:
    """Of the other of two ranks; and what calls of several sizes are expected to take."""
    return {
        "pair": engine().peer(1 - engine().rank)["pair"],
        "expected": [engine().candidates(_core.COLLECTIVES["allreduce"], 1 << power) for power in range(10, 24)],
        "written_by": _core.staging_copy(),
    }


def _two_ranks(**settings: str) -> list[dict[str, Any]]:
    env = {"CIRANDA_COSTS_FOLDER": "/dev/null", **settings}
    with _ahead_of_others(), Ranks(2, env={name: value for name, value in env.items() if value}) as ranks:
        seen: list[dict[str, Any]] = ranks.run(_seen)
        return seen


def _assumed() -> list[Any]:
    return _two_ranks(CIRANDA_AUTOTUNE="0")[0]["expected"]  # type: ignore[no-any-return]


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="ranks that share a core measure nothing")
def test_ranks_measure_each_other_and_expect_the_same() -> None:
    assumed = _assumed()
    began = time.monotonic()
    while True:
        one, other = _two_ranks()
        assert one["expected"] == other["expected"], "or they would take different algorithms"
        if (one["pair"] and other["pair"]) or time.monotonic() - began > _PATIENCE:
            break
        time.sleep(1)
    for seen in (one, other):
        assert seen["pair"]["line_ns"] > 0
        assert seen["pair"]["distance"] in ("near", "far")
        rates = seen["pair"]["hand_over_gb_per_s"]
        assert 0 < rates["cached"] < seen["pair"]["read_gb_per_s"]
        assert rates["past-caches"] > 0
        assert seen["written_by"] in rates
    assert one["expected"] != assumed


@pytest.mark.parametrize("technique", ["cached", "past-caches"])
def test_a_prescribed_technique_is_used(technique: str) -> None:
    assert [seen["written_by"] for seen in _two_ranks(CIRANDA_STAGING_COPY=technique)] == [technique] * 2


@pytest.mark.parametrize("settings", [{"CIRANDA_AUTOTUNE": "0"}, {"CIRANDA_SHARED_MEMORY": "0"}], ids=str)
def test_nothing_is_measured(settings: dict[str, str]) -> None:
    assert [seen["pair"] for seen in _two_ranks(**settings)] == [None] * 2
