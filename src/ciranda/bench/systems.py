"""What is measured: Ciranda through its NumPy interface, and torch's gloo on the same memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import ciranda
from ciranda.bench.plan import Array, Case

Call = Callable[[], Array]


class System(Protocol):
    """One system in a rank's process. Not thread-safe."""

    def bind(self, case: Case, buffer: Array) -> Call:
        """A call that performs the collective on ``buffer`` (in place but for allgather) and returns the result."""

    def close(self) -> None:
        """Leave."""


class Ciranda:
    """Ciranda, initialised by the caller."""

    def bind(self, case: Case, buffer: Array) -> Call:
        """See System."""
        name = case.name
        if case.collective == "broadcast":
            return lambda: ciranda.broadcast_(buffer, 0, name=name)
        if case.collective == "allgather":
            return lambda: ciranda.allgather(buffer, name=name)
        op = {
            "sum": ciranda.Sum,
            "average": ciranda.Average,
            "min": ciranda.Min,
            "max": ciranda.Max,
            "product": ciranda.Product,
        }[case.op]
        return lambda: ciranda.allreduce_(buffer, name=name, op=op)

    def close(self) -> None:
        """See System."""


class Gloo:
    """torch.distributed with its gloo backend over the loopback interface."""

    def __init__(self, rank: int, size: int, folder: str) -> None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        import torch
        from torch import distributed

        torch.set_num_threads(1)
        self._torch, self._distributed = torch, distributed
        store = (Path(folder) / "gloo").absolute().as_uri()
        distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=size)

    def bind(self, case: Case, buffer: Array) -> Call:
        """See System."""
        distributed = self._distributed
        tensor = self._tensor(buffer)

        def returning(result: Array, call: Callable[[], Any]) -> Call:
            def perform() -> Array:
                call()
                return result

            return perform

        if case.collective == "broadcast":
            return returning(buffer, lambda: distributed.broadcast(tensor, 0))
        if case.collective == "allgather":
            result = np.empty(case.count * case.np, dtype=buffer.dtype)
            output = self._tensor(result)
            return returning(result, lambda: distributed.all_gather_into_tensor(output, tensor))
        ops = {"sum": "SUM", "min": "MIN", "max": "MAX", "product": "PRODUCT"}
        op = getattr(distributed.ReduceOp, ops[case.op])
        return returning(buffer, lambda: distributed.all_reduce(tensor, op=op))

    def _tensor(self, array: Array) -> Any:
        """The same memory. NumPy has bfloat16 from the package ml_dtypes, of which torch does not know."""
        if array.dtype.name == "bfloat16":
            return self._torch.from_numpy(array.view(np.int16)).view(self._torch.bfloat16)
        return self._torch.from_numpy(array)

    def close(self) -> None:
        """See System."""
        self._distributed.destroy_process_group()


PEERS: dict[str, Callable[[int, int, str], System]] = {"gloo": Gloo}

# Why a peer cannot do a case, by (peer, op) or (peer, dtype).
CANNOT = {
    ("gloo", "average"): "torch's gloo has no average on the CPU",
    ("gloo", "int16"): "torch's gloo has no int16",
    ("gloo", "uint16"): "torch's gloo has no uint16",
    ("gloo", "uint32"): "torch's gloo has no uint32",
    ("gloo", "uint64"): "torch's gloo has no uint64",
}
