"""NVIDIA's GPUs: the driver, whether each GPU copies, with kernels or without, and which way tensors go.

A CPU job needs none of it.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator

from ciranda._nccl import nccl
from ciranda.doctor.engine import run_python
from ciranda.doctor.finding import Finding

# In a separate process: a driver that is broken may crash or hang, and a context takes memory on each GPU.
_TRIAL = """
import ctypes, json
try:
    driver = ctypes.CDLL("libcuda.so.1")
except OSError:
    print("null")
    raise SystemExit
version = ctypes.c_int()
driver.cuDriverGetVersion(ctypes.byref(version))
from ciranda import _core
devices = _core.examine_devices()
try:
    settings = _core.effective_settings()
except ValueError:
    settings = None
print(json.dumps([version.value, devices, settings]))
"""
_WITH_A_WAY = ("CIRANDA_GPU_WAY", "CIRANDA_GPU_REDUCE", "CIRANDA_SHARED_MEMORY")
_SECONDS = 60
_WITHOUT_KERNELS = "docs/devices.md says how a build gets kernels; `make wheel` insists on them"


def gpus() -> Iterator[Finding]:
    """Open each GPU, record an event, pin memory, and copy 1 MiB there and back; tell which way tensors go."""
    try:
        done = run_python(["-c", _TRIAL], keep=_WITH_A_WAY, seconds=_SECONDS)
    except subprocess.TimeoutExpired:
        advice = "see nvidia-smi, and the kernel's log (dmesg) for Xid errors"
        yield Finding("GPUs", "warn", f"the driver hangs: no answer after {_SECONDS} s", advice)
        return
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["it says nothing"]
        ended = signal.Signals(-done.returncode).name if done.returncode < 0 else f"code {done.returncode}"
        yield Finding("GPUs", "warn", f"the trial ended with {ended}: {lines[-1]}", "see nvidia-smi")
        return
    found = json.loads(done.stdout.splitlines()[-1])
    if found is None:
        yield Finding("GPUs", "ok", "no NVIDIA driver (libcuda.so.1): tensors in CPU memory only")
        return
    version, devices, settings = found
    yield Finding("NVIDIA driver", "ok", f"libcuda.so.1 supports CUDA {version // 1000}.{version % 1000 // 10}")
    yield from (_examined(*device) for device in devices)
    if settings is not None and not any(problem for _, problem, _ in devices):
        problem = no_ipc(len(devices))
        yield _ipc(problem, len(devices))
        has_kernels = not any(lacks for _, _, lacks in devices)
        yield Finding("GPU tensors", "ok", _way(settings, has_kernels=has_kernels, has_ipc=not problem))
    yield from nccl_found()


def no_ipc(n_gpus: int) -> str:
    """Return why a process on one of the GPUs cannot read what another has there, or on another; empty if it can."""
    try:
        done = run_python(["-m", "ciranda.doctor.ipc_trial", str(n_gpus)], keep=(), seconds=_SECONDS)
    except subprocess.TimeoutExpired:
        return f"no answer after {_SECONDS} s"
    said = (done.stderr if done.returncode != 0 else done.stdout).strip().splitlines()
    return said[-1] if said else ""


def _ipc(problem: str, n_gpus: int) -> Finding:
    if not problem:
        others = "on each GPU, and on those beside it" if n_gpus > 1 else "on GPU 0"
        return Finding("CUDA IPC", "ok", f"a process reads what another has {others}")
    advice = "in containers, ranks of a host need its IPC namespace, or one of them all: docker run --ipc=host"
    return Finding("CUDA IPC", "warn", f"a process cannot read what another has: {problem}", advice)


def nccl_found() -> Iterator[Finding]:
    """Which NCCL tensors on GPUs could go by. Those without a driver are not told."""
    found = nccl()
    if not found.problem:
        yield Finding("NCCL", "ok", f"{found.text} ({found.path}): CIRANDA_GPU_WAY=nccl uses it")
        return
    advice = "without it tensors on GPUs go by other ways: docs/guide/gpu.md" if found.version else ""
    yield Finding("NCCL", "warn" if found.version else "ok", found.problem, advice)


def _way(settings: dict[str, object], *, has_kernels: bool, has_ipc: bool) -> str:
    """How they go among ranks of this host, as far as one process can tell."""
    if not has_kernels:
        return "are staged in host memory, since a GPU has no kernels"
    if settings["CIRANDA_GPU_WAY"] == "staged":
        return "are staged in host memory, since CIRANDA_GPU_WAY is staged"
    if settings["CIRANDA_GPU_WAY"] == "nccl":
        who = "NCCL reduces" if settings["CIRANDA_GPU_REDUCE"] == "nccl" else "kernels of Ciranda reduce"
        return f"go by NCCL if each rank has a GPU of its own, and {who}; not scans, Adasum and weighted averages"
    if not settings["CIRANDA_SHARED_MEMORY"]:
        return "are staged in host memory, since CIRANDA_SHARED_MEMORY is off"
    if not has_ipc:
        return "are staged in host memory, since processes cannot read each other's memory on a GPU"
    return "go by peer among ranks of one host, but for Adasum and weighted averages, which are staged in host memory"


def _examined(name: str, problem: str, no_kernels: str) -> Finding:
    if problem:
        name = "GPUs" if name == "cuda" else name
        return Finding(name, "warn", problem, "jobs on the CPU run; tensors on it are refused until that is mended")
    works = "an event, pinned memory, and 1 MiB there and back are right"
    if no_kernels:
        return Finding(name, "warn", f"{works}; small tensors are copied one by one: {no_kernels}", _WITHOUT_KERNELS)
    return Finding(name, "ok", f"{works}; its kernels are loaded")
