"""Circles of ranks for the tests of Keras, which import it once. The backend is that of KERAS_BACKEND."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ranks import Ranks

HERE = Path(__file__).parent
#: What ranks need to find this folder's modules.
ENVIRONMENT = {"CIRANDA_AUTOTUNE": "0", "PYTHONPATH": str(HERE), "TF_CPP_MIN_LOG_LEVEL": "2"}


class Circles:
    """One circle of each size, made when it is first asked for, and anew if a test broke it."""

    def __init__(self) -> None:
        self._circles: dict[int, Ranks] = {}

    def of(self, n_ranks: int) -> Ranks:
        circle = self._circles.get(n_ranks)
        if circle is None or circle.is_broken:
            if circle is not None:
                circle.close(expect_clean=False)
            circle = self._circles[n_ranks] = Ranks(n_ranks, env=ENVIRONMENT)
        return circle

    def apart(self, n_ranks: int) -> Ranks:
        """Return a circle for what changes its processes for good. The caller closes it."""
        return Ranks(n_ranks, env=ENVIRONMENT)

    def close(self) -> None:
        for circle in self._circles.values():
            circle.close(expect_clean=not circle.is_broken)


@pytest.fixture(scope="session")
def circles() -> Iterator[Circles]:
    shared = Circles()
    yield shared
    shared.close()


@pytest.fixture
def two(circles: Circles) -> Ranks:
    return circles.of(2)


@pytest.fixture
def three(circles: Circles) -> Ranks:
    return circles.of(3)


_SIZES = [pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(4, marks=pytest.mark.slow)]


@pytest.fixture(params=_SIZES, ids=lambda n: f"{n}ranks")
def circle(circles: Circles, request: pytest.FixtureRequest) -> Ranks:
    return circles.of(request.param)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keras and its backends warn of what they do themselves. A circle is broken when all others have had it."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))
    items.sort(key=lambda item: HERE in item.path.parents and "killed" in item.name)
