"""A framework in 60 lines of code: the collectives on arrays of Python's module `array`, with a proof that they work.

    ciranda run -np 3 python examples/array_framework.py

For who brings a framework to Ciranda: its tensors are described by an `Adapter`, of which `Collectives` makes all
functions. These modules are Ciranda's own, and may change with any release.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np

import ciranda
from ciranda import _core
from ciranda._collectives import Adapter, CompressedCollectives
from ciranda.errors import InvalidArgumentError

DTYPES = {
    "b": "int8",
    "B": "uint8",
    "i": "int32",
    "I": "uint32",
    "q": "int64",
    "Q": "uint64",
    "f": "float32",
    "d": "float64",
}


def readable(tensor: Iterable[float]) -> array[Any]:
    """Anything that is given is an array, or floats to make one of."""
    return tensor if isinstance(tensor, array) else array("d", tensor)


def writable(tensor: array[Any]) -> array[Any]:
    if not isinstance(tensor, array):
        raise InvalidArgumentError(f"an in-place operation needs an array.array, got {type(tensor).__name__}")
    return tensor


def for_engine(tensor: array[Any]) -> _core.TensorDescription:
    if tensor.typecode not in DTYPES:
        raise InvalidArgumentError(f"an array of type {tensor.typecode!r} cannot be communicated")
    dtype = _core.DATA_TYPES[DTYPES[tensor.typecode]]
    return _core.TensorDescription(tensor.buffer_info()[0], (len(tensor),), dtype, tensor)


ADAPTER: Adapter[Iterable[float], array[Any], list[int]] = Adapter(
    module=__name__,
    types={"Given": "Iterable[float]", "Tensor": "array[Any]", "Splits": "list[int]"},
    namespace=globals(),
    readable=readable,
    writable=writable,
    for_engine=for_engine,
    like=lambda tensor: array(tensor.typecode, bytes(tensor.itemsize * len(tensor))),
    bring_back=lambda work, tensor: tensor,  # which is what the engine has worked on
    from_engine=lambda output, tensor: array(tensor.typecode, output.tobytes()),
    share_memory=lambda one, other: one is other,
    splits=np.asarray,
    counts=lambda numbers, splits: array("q", numbers.tobytes()),
)
collectives = CompressedCollectives(ADAPTER)


def main() -> int:
    ciranda.init()
    n, rank = ciranda.size(), ciranda.rank()
    mine = array("f", [rank, 1.0])
    everyone = collectives.allgather(array("i", [rank] * rank))
    came, counts = collectives.alltoall(array("d", [rank] * n), [1] * n)
    is_right = (
        collectives.allreduce(mine, op=ciranda.Sum) == array("f", [n * (n - 1) / 2, n])
        and collectives.broadcast_(mine, root_rank=n - 1) is mine
        and mine == array("f", [n - 1, 1.0])
        and everyone == array("i", [each for each in range(n) for _ in range(each)])
        and (came, counts) == (array("d", range(n)), array("q", [1] * n))
    )
    print(f"rank {rank}: {'all as expected' if is_right else 'WRONG'}")
    ciranda.shutdown()
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
