"""The world of ranks that the tests of ciranda.paddle share: Paddle takes seconds to load."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ranks import Ranks

pytest.importorskip("paddle")

#: The first leaves out what Paddle tells of itself. The second makes its matrix products as fast on AMD as on Intel.
ENVIRONMENT = {
    "GLOG_minloglevel": "2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    **{name: os.environ[name] for name in ("CIRANDA_PADDLE_OPS",) if name in os.environ},
    "PYTHONPATH": os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")])),
}


if "CIRANDA_PADDLE_OPS" in os.environ:  # what is asked for is what is tested
    from ciranda.paddle import _plugin

    assert _plugin.load().value == os.environ["CIRANDA_PADDLE_OPS"], _plugin.describe()


@pytest.fixture(scope="session")
def _worlds() -> Iterator[dict[int, Ranks]]:
    worlds: dict[int, Ranks] = {}
    yield worlds
    for world in worlds.values():
        world.close(expect_clean=not world.is_broken)


@pytest.fixture
def environment() -> dict[str, str]:
    """What ranks need to find this folder's modules."""
    return ENVIRONMENT


@pytest.fixture
def two(_worlds: dict[int, Ranks]) -> Ranks:
    """A world of two, made anew if a test broke it."""
    if 2 in _worlds and _worlds[2].is_broken:
        _worlds.pop(2).close(expect_clean=False)
    if 2 not in _worlds:
        _worlds[2] = Ranks(2, env=ENVIRONMENT)
    return _worlds[2]
