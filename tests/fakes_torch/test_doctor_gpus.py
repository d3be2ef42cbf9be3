"""What `ciranda doctor` says of GPUs, on the fake driver."""

from __future__ import annotations

import pytest
import torch_cuda

from ciranda.doctor import Finding, gpus

pytestmark = pytest.mark.timeout(600)  # the first test compiles the fake

WORKS = "an event, pinned memory, and 1 MiB there and back are right"


def examined(monkeypatch: pytest.MonkeyPatch, **given: str) -> list[Finding]:
    monkeypatch.setenv("LD_LIBRARY_PATH", torch_cuda.environment()["LD_LIBRARY_PATH"])
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return list(gpus.gpus())


def test_each_gpu_is_opened_and_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = {"FAKE_CUDA_DEVICES": "2", "FAKE_CUDA_VERSION": "12040", "FAKE_CUDA_DELAY_SEED": "1"}
    driver, *each, ipc, way, nccl = examined(monkeypatch, **fakes)
    assert (driver.name, driver.status, driver.found) == ("NVIDIA driver", "ok", "libcuda.so.1 supports CUDA 12.4")
    assert [gpu.name for gpu in each] == ["GPU 0 (GPU-5f5f5f00)", "GPU 1 (GPU-5f5f5f01)"]
    assert (ipc.name, ipc.status, ipc.found) == (
        "CUDA IPC",
        "ok",
        "a process reads what another has on each GPU, and on those beside it",
    )
    assert way.name == "GPU tensors"
    assert nccl.name == "NCCL"
    for gpu in each:
        assert gpu.found.startswith(WORKS), gpu
        has_kernels = gpu.found == f"{WORKS}; so is what a kernel sums up there"
        assert (gpu.status, gpu.advice == "") == (("ok", True) if has_kernels else ("warn", False)), gpu


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"FAKE_CUDA_IPC": "no_export"}, "cuIpcGetMemHandle failed on GPU 0: CUDA_ERROR_NOT_SUPPORTED (801)"),
        ({"FAKE_CUDA_IPC": "no_import"}, "cuIpcOpenMemHandle failed on GPU 0: CUDA_ERROR_"),
    ],
)
def test_memory_that_processes_cannot_share_is_said(
    given: dict[str, str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, ipc, way, _ = examined(monkeypatch, **given)
    assert (ipc.status, reason in ipc.found, "--ipc=host" in ipc.advice) == ("warn", True, True), ipc
    assert way.found.startswith("are staged in host memory"), way


@pytest.mark.parametrize(
    ("given", "name", "reason"),
    [
        ({"FAKE_CUDA_VERSION": "11080"}, "GPUs", "the NVIDIA driver is too old: it supports CUDA 11.8"),
        ({"FAKE_CUDA_INIT": "100"}, "GPUs", "cuInit failed: CUDA_ERROR_NO_DEVICE"),
        (
            {"FAKE_CUDA_FAIL": "cuDevicePrimaryCtxRetain:1:2"},
            "GPU 0",
            "cuDevicePrimaryCtxRetain on GPU 0 (GPU-5f5f5f00)",
        ),
        ({"FAKE_CUDA_FAIL": "cuEventCreate:1:999"}, "GPU 0 (GPU-5f5f5f00)", "cuEventCreate on GPU 0 (GPU-5f5f5f00)"),
        ({"FAKE_CUDA_PINNED": "1000000"}, "GPU 0 (GPU-5f5f5f00)", "there is no pinned host memory"),
        ({"FAKE_CUDA_MEMORY": "1000000"}, "GPU 0 (GPU-5f5f5f00)", "there is no memory on GPU 0 (GPU-5f5f5f00)"),
        (
            {"FAKE_CUDA_FAIL_RUN": "cuMemcpyDtoHAsync:1:700"},
            "GPU 0 (GPU-5f5f5f00)",
            "failed: CUDA_ERROR_ILLEGAL_ADDRESS",
        ),
    ],
)
def test_what_is_wrong_is_named_with_a_way_out(
    given: dict[str, str], name: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, gpu, *_ = examined(monkeypatch, **given)
    assert (gpu.name.startswith(name), gpu.status) == (True, "warn"), gpu
    assert reason in gpu.found, gpu
    assert gpu.advice
