"""Where Ciranda cannot be built, CMake says so before anything is compiled."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_MODULE = _ROOT / "cmake" / "CirandaPlatform.cmake"

pytestmark = pytest.mark.skipif(
    shutil.which("cmake") is None or not _MODULE.exists(), reason="needs cmake and the sources"
)


def _refusal_of(folder: Path, script: str) -> str:
    """What CMake says of a script, on one line; empty if it has no objection."""
    path = folder / "script.cmake"
    path.write_text(f'cmake_minimum_required(VERSION 3.25)\ninclude("{_MODULE}")\n{script}')
    run = subprocess.run(["cmake", "-P", str(path)], capture_output=True, text=True, check=False)
    assert (run.returncode != 0) == ("CMake Error" in run.stderr), run.stderr
    return " ".join(run.stderr.split())


def test_this_system_and_this_python_are_not_refused(tmp_path: Path) -> None:
    assert _refusal_of(tmp_path, f'ciranda_refuse_system()\nciranda_refuse_python("{sys.executable}")') == ""


def test_a_system_that_is_not_linux_is_refused(tmp_path: Path) -> None:
    refusal = _refusal_of(tmp_path, "set(CMAKE_HOST_LINUX OFF)\nciranda_refuse_system()")
    assert "runs on Linux only" in refusal
    assert "packaging/docker/Dockerfile" in refusal


def test_free_threaded_python_is_refused(tmp_path: Path) -> None:
    python = tmp_path / "python3.14t"
    python.write_text("#!/bin/sh\necho 1\n")
    python.chmod(0o755)
    refusal = _refusal_of(tmp_path, f'ciranda_refuse_python("{python}")')
    assert f"does not run on free-threaded Python ({python}) yet" in refusal
    assert "python3.14 instead" in refusal


@pytest.mark.parametrize(
    ("has_glibc", "n_bytes", "said"),
    [(False, 8, "needs glibc, 2.28 or newer"), (True, 4, "needs a processor of 64 bits")],
)
def test_a_target_without_glibc_or_of_32_bits_is_refused(
    tmp_path: Path, has_glibc: bool, n_bytes: int, said: str
) -> None:
    # As if the compiler had been asked.
    given = f"set(CIRANDA_HAS_GLIBC {int(has_glibc)})\nset(CMAKE_SIZEOF_VOID_P {n_bytes})\n"
    assert said in _refusal_of(tmp_path, f"{given}ciranda_refuse_target()")
