"""The worlds of ranks that the tests of ciranda.jax share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ranks import Ranks

pytest.importorskip("jax")


@pytest.fixture(scope="session")
def _worlds() -> Iterator[dict[int, Ranks]]:
    worlds: dict[int, Ranks] = {}
    yield worlds
    for world in worlds.values():
        world.close(expect_clean=not world.is_broken)


def _world(worlds: dict[int, Ranks], n: int) -> Ranks:
    if n in worlds and worlds[n].is_broken:
        worlds.pop(n).close(expect_clean=False)
    if n not in worlds:
        worlds[n] = Ranks(n)
    return worlds[n]


@pytest.fixture
def three(_worlds: dict[int, Ranks]) -> Ranks:
    """A world of three, made anew if a test broke it."""
    return _world(_worlds, 3)


@pytest.fixture(params=[3, pytest.param(4, marks=pytest.mark.slow)])
def three_or_four(request: pytest.FixtureRequest, _worlds: dict[int, Ranks]) -> Ranks:
    """For what must be right whatever the number of ranks; the second takes as long again."""
    return _world(_worlds, request.param)
