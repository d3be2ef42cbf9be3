"""The circle of ranks that the tests of ciranda.mxnet share."""

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
        _circles[3] = Ranks(3, env={"PYTHONPATH": str(HERE)})
    return _circles[3]
