"""The stage `make engines`: ranks that Ray and Spark start, with the real parts, and which versions they are."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "multiprocess")]

import netns

# Ray's workers would get no time on a machine that has other work, so that tests end by their limits.
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 (its name)

PACKAGES = ("ray", "pyspark", "torch", "ciranda")


def pytest_report_header() -> str:
    return "with " + ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)


def pytest_configure(config: pytest.Config) -> None:
    # What others' packages warn of as they are imported is theirs.
    config.addinivalue_line("filterwarnings", "default")


@pytest.fixture(scope="module")
def hosts() -> Iterator[netns.Hosts]:
    """Three hosts, on which the tests start the engine's own processes; they end with these."""
    if (why := netns.why_not()) is not None:
        pytest.skip(f"NOT TESTED, several hosts: {why}")
    with netns.hosts("host0", "host1", "host2") as made:
        yield made
