"""The circle of ranks that the tests of ciranda.jax share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ranks import Ranks

pytest.importorskip("jax")


@pytest.fixture(scope="session")
def _circles() -> Iterator[dict[int, Ranks]]:
    circles: dict[int, Ranks] = {}
    yield circles
    for circle in circles.values():
        circle.close(expect_clean=not circle.is_broken)


@pytest.fixture
def three(_circles: dict[int, Ranks]) -> Ranks:
    """A circle of three, made anew if a test broke it."""
    if 3 in _circles and _circles[3].is_broken:
        _circles.pop(3).close(expect_clean=False)
    if 3 not in _circles:
        _circles[3] = Ranks(3)
    return _circles[3]
