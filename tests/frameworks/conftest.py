"""The world of ranks that the tests of the conformance suite share, and which frameworks they are run for."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path

import chosen
import programs
import pytest
from ranks import Ranks


def pytest_report_header() -> str:
    return chosen.describe()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "framework" in metafunc.fixturenames:
        names = chosen.FRAMEWORKS
        if metafunc.definition.get_closest_marker("gradients"):
            names = [name for name in names if importlib.import_module(f"on_{name}").Adapter.has_gradients]
        metafunc.parametrize("framework", names)


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What ranks need to find the suite, and the programs that are built for it."""
    folder = tmp_path_factory.mktemp("programs")
    programs.build(folder)
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": path, programs.FOLDER: str(folder)}


class Shared:
    """A world of three, made anew if a test broke it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._ranks: Ranks | None = None

    def get(self) -> Ranks:
        if self._ranks is not None and self._ranks.is_broken:
            self.close()
        if self._ranks is None:
            self._ranks = Ranks(3, env=self._environment)
        return self._ranks

    def close(self) -> None:
        if self._ranks is not None:
            self._ranks.close(expect_clean=not self._ranks.is_broken)
            self._ranks = None


@pytest.fixture(scope="session")
def _shared(environment: dict[str, str]) -> Iterator[Shared]:
    shared = Shared(environment)
    yield shared
    shared.close()


@pytest.fixture
def world(_shared: Shared) -> Ranks:
    return _shared.get()
