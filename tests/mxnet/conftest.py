"""The world of ranks that the tests of ciranda.mxnet share."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from ranks import Ranks

if importlib.util.find_spec("mxnet") is None:
    pytest.skip("mxnet is not here", allow_module_level=True)

import ciranda.mxnet  # noqa: F401 (it keeps MXNet's warnings, when ranks return exceptions of it)

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def _worlds() -> Iterator[dict[int, Ranks]]:
    worlds: dict[int, Ranks] = {}
    yield worlds
    for world in worlds.values():
        world.close(expect_clean=not world.is_broken)


@pytest.fixture
def three(_worlds: dict[int, Ranks]) -> Ranks:
    """A world of three, made anew if a test broke it."""
    if 3 in _worlds and _worlds[3].is_broken:
        _worlds.pop(3).close(expect_clean=False)
    if 3 not in _worlds:
        _worlds[3] = Ranks(3, env={"PYTHONPATH": str(HERE)})
    return _worlds[3]
