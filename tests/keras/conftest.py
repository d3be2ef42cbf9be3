"""Worlds of ranks for the tests of Keras, which import it once. The backend is that of KERAS_BACKEND."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ranks import Ranks

HERE = Path(__file__).parent
#: What ranks need to find this folder's modules.
ENVIRONMENT = {"CIRANDA_AUTOTUNE": "0", "PYTHONPATH": str(HERE), "TF_CPP_MIN_LOG_LEVEL": "2"}


class Worlds:
    """One world of each size, made when it is first asked for, and anew if a test broke it."""

    def __init__(self) -> None:
        self._worlds: dict[int, Ranks] = {}

    def of(self, n_ranks: int) -> Ranks:
        world = self._worlds.get(n_ranks)
        if world is None or world.is_broken:
            if world is not None:
                world.close(expect_clean=False)
            world = self._worlds[n_ranks] = Ranks(n_ranks, env=ENVIRONMENT)
        return world

    def apart(self, n_ranks: int) -> Ranks:
        """Return a world for what changes its processes for good. The caller closes it."""
        return Ranks(n_ranks, env=ENVIRONMENT)

    def close(self) -> None:
        for world in self._worlds.values():
            world.close(expect_clean=not world.is_broken)


@pytest.fixture(scope="session")
def worlds() -> Iterator[Worlds]:
    shared = Worlds()
    yield shared
    shared.close()


@pytest.fixture
def two(worlds: Worlds) -> Ranks:
    return worlds.of(2)


@pytest.fixture
def three(worlds: Worlds) -> Ranks:
    return worlds.of(3)


_SIZES = [pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(4, marks=pytest.mark.slow)]


@pytest.fixture(params=_SIZES, ids=lambda n: f"{n}ranks")
def world(worlds: Worlds, request: pytest.FixtureRequest) -> Ranks:
    return worlds.of(request.param)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keras and its backends warn of what they do themselves. A world is broken when all others have had it."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))
    items.sort(key=lambda item: HERE in item.path.parents and "killed" in item.name)
