"""The world of ranks that these tests share: TensorFlow takes seconds to load."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ranks import Ranks

ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_NUM_INTEROP_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent)}


class Shared:
    """A world of three, made anew if a test broke it."""

    def __init__(self) -> None:
        self._ranks: Ranks | None = None

    def get(self) -> Ranks:
        if self._ranks is not None and self._ranks.is_broken:
            self.close()
        if self._ranks is None:
            self._ranks = Ranks(3, env=ENVIRONMENT)
        return self._ranks

    def close(self) -> None:
        if self._ranks is not None:
            self._ranks.close(expect_clean=not self._ranks.is_broken)
            self._ranks = None


@pytest.fixture(scope="session")
def _shared() -> Iterator[Shared]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    shared = Shared()
    yield shared
    shared.close()


@pytest.fixture
def environment() -> dict[str, str]:
    """What ranks need to find this folder's modules; with one thread for the ops of a graph."""
    return ENVIRONMENT


@pytest.fixture
def world(_shared: Shared) -> Ranks:
    return _shared.get()
