"""Which NCCL is found, and what is said of it. No process opens it for that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import ciranda
from ciranda import _nccl
from ciranda.doctor import gpus, settings, versions

#: A library with NCCL's functions, none of which does anything but ncclGetVersion.
_SOURCE = """
int ncclGetVersion(int* version) { *version = VERSION; return 0; }
int ncclGetErrorString, ncclGetLastError, ncclGetUniqueId, ncclCommInitRankConfig, ncclCommGetAsyncError;
int ncclCommFinalize, ncclCommDestroy, ncclCommAbort, ncclGroupStart, ncclGroupEnd, ncclAllReduce, ncclReduce;
int ncclReduceScatter, ncclAllGather, ncclBroadcast, ncclSend, ncclRecv;
"""


def named(folder: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> str:
    file = folder / "libnccl.so.2"
    command = ["cc", "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", f"-DVERSION={version}", "-o", str(file)]
    command += ["-x", "c", "-"]
    subprocess.run(command, input=_SOURCE, text=True, check=True)
    monkeypatch.setenv("CIRANDA_NCCL", str(file))
    return str(file)


def test_one_that_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = named(tmp_path, 23005, monkeypatch)
    assert _nccl.nccl() == (23005, file, "")
    assert ciranda.nccl_built() == 23005
    assert file not in Path("/proc/self/maps").read_text()
    assert versions.versions_here()["NCCL"] == f"2.30.5 ({file})"
    (finding,) = gpus.nccl_found()
    assert (finding.status, finding.found) == ("ok", f"2.30.5 ({file}): CIRANDA_GPU_WAY=nccl uses it")


def test_one_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = named(tmp_path, 22005, monkeypatch)
    assert ciranda.nccl_built() == 0
    problem = f"NCCL 2.20.5 ({file}) is too old. NCCL 2.26.2 or newer is needed"
    assert versions.versions_here()["NCCL"].startswith(f"2.20.5 ({file}); not used: {problem}")
    (finding,) = gpus.nccl_found()
    assert finding.status == "warn"
    assert finding.found.startswith(problem)
    assert finding.advice


def test_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CIRANDA_NCCL", str(tmp_path / "libnccl.so.2"))
    assert ciranda.nccl_built() == 0
    assert versions.versions_here()["NCCL"] == "none"
    (finding,) = gpus.nccl_found()
    assert (finding.status, finding.found.startswith("NCCL was not found: ")) == ("ok", True)


def test_the_one_that_the_process_has_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = named(tmp_path, 22809, monkeypatch)
    monkeypatch.delenv("CIRANDA_NCCL")
    asked = f"import ctypes; ctypes.CDLL({file!r}); import ciranda; print(ciranda.nccl_built())"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout == "22809\n"


def test_settings_of_horovod_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in settings.OF_NCCL:
        monkeypatch.setenv(name, "1")
    found = [finding.found for finding in settings.settings()]
    for name, why in settings.OF_NCCL.items():
        assert f"{name} is set, and ignored: {why}" in found
