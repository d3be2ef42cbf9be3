"""A `torch.cuda` on the fake driver, for a torch that was built without CUDA.

Tensors of device "cuda" have memory of the fake `libcuda.so.1` (tests/fakes/cuda.hpp), which no thread of the host can
touch, and their operators are kernels on the current stream of the calling thread, which the fake's checker orders with
all others. The kernels are torch's own for the CPU, so results are the same bits.

A program that is started with environment() finds it when it imports torch:

    subprocess.run([sys.executable, "program.py"], env={**os.environ, **torch_cuda.environment()})

What is as on a GPU:
  streams      tensors, autograd and optimizers use the current stream; the default one is the legacy default stream;
               Stream() is not ordered with it
  waits        the host knows of a stream's work after .item(), .cpu(), a copy that may block, Event.synchronize()...,
               not after an operator, although that has run when it returns
  memory       what is freed is the next tensor's of the same size on the same stream, at once; see record_stream().
               PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync and expandable_segments:True are memory that CUDA IPC
               does not export
  pinned       pin_memory() and copies with non_blocking=True
  threads      backward runs on the thread of the device, on the stream of each node's forward
What is not: an operator blocks the caller until its stream has come to it, and with sparse tensors (COO) until it has
run; other sparse ones and quantized tensors, fused RNN cells, and sharing tensors with other processes. Nor is an
operator part of a CUDA graph: only what calls the driver itself is, as collectives do.
"""

import os
from pathlib import Path

from .build import driver, library, nccl
from .importing import has_real_cuda, install

__all__ = ["environment", "has_real_cuda", "install", "with_nccl"]

_HERE = Path(__file__).resolve().parent


def environment() -> dict[str, str]:
    """Returns what a program needs in its environment.

    Compiles the fake driver and the C++ part at the first call, which takes a minute or two.
    """
    library()
    paths = {"LD_LIBRARY_PATH": [driver().parent], "PYTHONPATH": [_HERE / "at_start", _HERE.parent]}
    return {name: os.pathsep.join([*map(str, added), *_before(name)]) for name, added in paths.items()}


def with_nccl(n_gpus: int) -> dict[str, str]:
    """Returns, beside environment(), what ranks need to exchange their tensors by the fake NCCL (tests/fakes/nccl)."""
    return {"CIRANDA_GPU_WAY": "nccl", "CIRANDA_NCCL": str(nccl()), "FAKE_CUDA_DEVICES": str(n_gpus)}


def _before(name: str) -> list[str]:
    return list(filter(None, [os.environ.get(name)]))
