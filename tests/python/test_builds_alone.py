"""What is said about builds, and timelines that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

import ciranda

BUILT = ["ccl_built", "ddl_built", "mpi_built", "mpi_enabled", "rocm_built"]


@pytest.mark.parametrize("name", BUILT)
def test_what_is_not_there(name: str) -> None:
    assert not getattr(ciranda, name)()


def test_what_is_there() -> None:
    assert ciranda.gloo_built() is True
    assert ciranda.gloo_enabled() is True
    assert ciranda.cuda_built() is True


def test_nccl_is_a_version() -> None:
    assert isinstance(ciranda.nccl_built(), int)
    assert not isinstance(ciranda.nccl_built(), bool)


def test_before_init() -> None:
    for function in (ciranda.mpi_threads_supported, ciranda.stop_timeline, lambda: ciranda.start_timeline("x")):
        with pytest.raises(ValueError, match="init"):
            function()


@pytest.mark.usefixtures("alone")
def test_after_init(tmp_path: Path) -> None:
    assert ciranda.mpi_threads_supported() is False
    with pytest.raises(ValueError, match="cannot be written"):
        ciranda.start_timeline(tmp_path / "missing" / "timeline.json")
    ciranda.start_timeline(tmp_path / "timeline.json", mark_cycles=True)
    ciranda.stop_timeline()
    assert (tmp_path / "timeline.json").read_text().endswith("]\n")
