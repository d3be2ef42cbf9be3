"""The circles of ranks that the tests of ciranda.jax share."""

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
        circle.close(expect_clean=not circle.is_broken, within=100)


def _circle(circles: dict[int, Ranks], n: int) -> Ranks:
    if n in circles and circles[n].is_broken:
        circles.pop(n).close(expect_clean=False)
    if n not in circles:
        circles[n] = Ranks(n)
    return circles[n]


@pytest.fixture
def three(_circles: dict[int, Ranks]) -> Ranks:
    """A circle of three, made anew if a test broke it."""
    return _circle(_circles, 3)


@pytest.fixture(params=[3, pytest.param(4, marks=pytest.mark.slow)])
def three_or_four(request: pytest.FixtureRequest, _circles: dict[int, Ranks]) -> Ranks:
    """For what must be right whatever the number of ranks; the second takes as long again."""
    return _circle(_circles, request.param)
