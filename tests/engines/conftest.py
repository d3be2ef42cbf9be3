"""The stage `make engines`: ranks that Ray and Spark start, with the real parts, and which versions they are."""

from __future__ import annotations

import importlib.metadata

import pytest

PACKAGES = ("ray", "pyspark", "torch", "ciranda")


def pytest_report_header() -> str:
    return "with " + ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)


def pytest_configure(config: pytest.Config) -> None:
    # What others' packages warn of as they are imported is theirs.
    config.addinivalue_line("filterwarnings", "default")
