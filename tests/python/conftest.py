"""Fixtures for tests in one process."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("any machine", deadline=None)  # a busy one takes longer than hypothesis allows
settings.load_profile("any machine")


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A world of one, whatever the environment says."""
    import ciranda

    for name in list(os.environ):
        if name.startswith(("CIRANDA_", "HOROVOD_")):
            monkeypatch.delenv(name)
    ciranda.init()
    yield
    ciranda.shutdown()
