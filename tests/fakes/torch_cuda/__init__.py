"""A `torch.cuda` on the fake driver, for a torch that was built without CUDA.

Tensors of device "cuda" have memory of the fake `libcuda.so.1` (tests/fakes/cuda.hpp), which no thread of the host can
touch, and their operators are kernels on the current stream of the calling thread, which the fake's checker orders with
all others. The kernels are torch's own for the CPU, so results are the same bits.

A program runs with environment(), and begins with

    import torch_cuda

    torch_cuda.install()  # before torch is imported
    import torch

What is as on a GPU:
  streams      tensors, autograd and optimizers use the current stream; the default one is the legacy default stream;
               Stream() is not ordered with it
  waits        the host knows of a stream's work after .item(), .cpu(), a copy that may block, Event.synchronize()...,
               not after an operator, although that has run when it returns
  memory       what is freed is the next tensor's of the same size on the same stream, at once; see record_stream()
  pinned       pin_memory() and copies with non_blocking=True
  threads      backward runs on the thread of the device, on the stream of each node's forward
What is not: an operator blocks the caller until its stream has come to it; sparse and quantized tensors, fused RNN
cells, graphs, and sharing tensors with other processes.
"""

import ctypes
import os
import sys
from pathlib import Path

from .build import driver, library, torch_folder

_library: ctypes.CDLL | None = None


def _load(path: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(path))
    loaded.fake_torch_stream.restype = ctypes.c_size_t
    loaded.fake_torch_set_stream.argtypes = [ctypes.c_int, ctypes.c_size_t]
    loaded.fake_torch_resize_storage.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
    loaded.fake_torch_n_allocated_bytes.restype = ctypes.c_size_t
    return loaded


def environment() -> dict[str, str]:
    """Returns what a program needs in its environment to find the fake driver and this package."""
    paths = {"LD_LIBRARY_PATH": driver().parent, "PYTHONPATH": Path(__file__).parents[1]}
    return {name: os.pathsep.join(filter(None, [str(path), os.environ.get(name)])) for name, path in paths.items()}


def install() -> None:
    """Makes `torch.cuda` that of the fake driver, which LD_LIBRARY_PATH must lead to.

    Call it before torch is imported: torch asks once whether it has CUDA. Raises RuntimeError if torch was built with
    CUDA, or if `libcuda.so.1` is another driver.
    """
    global _library
    if _library is not None:
        return
    if (torch_folder() / "lib/libtorch_cuda.so").exists():
        raise RuntimeError("this torch was built with CUDA, which needs no fake")
    if "torch" in sys.modules:
        raise RuntimeError("install() comes before torch is imported")
    _library = _load(library())
    from . import api, storage  # they import torch

    api.install(_library)
    storage.install(_library)
