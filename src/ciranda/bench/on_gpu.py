"""What is measured on GPUs: Ciranda through `ciranda.torch`. Needs torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import ciranda.torch as hvd
from ciranda.bench.plan import Array, Case
from ciranda.bench.systems import Call


def described() -> str:
    """The GPUs of this machine, as "8 x NVIDIA H100"; empty if torch sees none."""
    if not torch.cuda.is_available():
        return ""
    return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"


def choose_gpu(local_rank: int) -> None:
    """Give this rank a GPU of its own, as far as there are enough."""
    torch.cuda.set_device(local_rank % torch.cuda.device_count())


def number_of_gpu() -> int:
    """That of this rank's GPU, in this process."""
    return torch.cuda.current_device()


class OnGpu:
    """A tensor on this rank's GPU, with what a measurement does to a buffer. The host waits for all of it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    @classmethod
    def zeros(cls, case: Case) -> OnGpu:
        """For the case's input."""
        return cls(torch.from_numpy(np.zeros(case.count, dtype=case.dtype)).cuda())

    def fill(self, value: int) -> None:
        """As of a NumPy array."""
        self.tensor.fill_(value)
        torch.cuda.synchronize()

    def __setitem__(self, where: slice, values: Array) -> None:
        self.tensor[where] = torch.from_numpy(values).to(self.tensor.device)
        torch.cuda.synchronize()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.tensor.cpu().numpy(), dtype=dtype)


class CirandaOnGpu:
    """Ciranda, initialised by the caller. A call has returned when its result is on the GPU."""

    def bind(self, case: Case, buffer: Any) -> Call:
        """See System."""
        tensor, name = buffer.tensor, case.name

        def call() -> Any:
            if case.collective == "broadcast":
                result = hvd.broadcast_(tensor, 0, name=name)
            elif case.collective == "allgather":
                result = hvd.allgather(tensor, name=name)
            else:
                result = hvd.allreduce_(tensor, name=name, op=_OPS[case.op])
            torch.cuda.synchronize()
            return OnGpu(result)

        return call

    def close(self) -> None:
        """See System."""


_OPS = {"sum": hvd.Sum, "average": hvd.Average, "min": hvd.Min, "max": hvd.Max, "product": hvd.Product}
