"""The way of a cache line, between two threads of this process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ciranda import _core
from ciranda.errors import InvalidArgumentError


def test_both_sides_measure_it_again_and_again() -> None:
    line = np.zeros(128, dtype=np.uint8)

    def measure(is_first: bool) -> list[float | None]:
        probe = _core.LineProbe(line, is_first)
        return [probe.one_way_ns(60.0) for _ in range(3)]

    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(measure, (True, False)):
            assert all(ns is not None and ns > 0 for ns in found)


@pytest.mark.parametrize("is_first", [True, False])
def test_who_is_alone_measures_nothing(is_first: bool) -> None:
    assert _core.LineProbe(np.zeros(128, dtype=np.uint8), is_first).one_way_ns(0.0) is None


def test_a_line_needs_room() -> None:
    with pytest.raises(InvalidArgumentError, match="8 aligned bytes"):
        _core.LineProbe(np.zeros(7, dtype=np.uint8), True)


@pytest.mark.parametrize(("line_ns", "distance"), [(27.0, "near"), (120.0, "near"), (240.0, "far")])
def test_distances_have_names(line_ns: float, distance: str) -> None:
    assert _core.distance_of(line_ns) == distance
