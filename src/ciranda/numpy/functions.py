"""Functions on NumPy arrays beside the collectives: arrays in shared memory, and comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ciranda import _basics, _consistency
from ciranda.numpy.arrays import for_engine, readable
from ciranda.process_sets import ProcessSet, global_process_set


def empty(shape: int | Sequence[int], dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
    """Return a new array in memory that the ranks of a host share, and combine without a copy. All ranks must call it.

    `allreduce_` and `grouped_allreduce_` reduce it in place, from about 16 KiB on. On several hosts, or if `/dev/shm`
    has no room, it is in private memory, on all ranks alike. It contains zeros.

    Args:
        shape: its shape; ranks need not agree.
        dtype: a type of NumPy's own.
    """
    n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory, _ = _basics.engine().allocate_shared(n_bytes, np.empty(0, np.uint8))
    result: npt.NDArray[Any] = memory.view(dtype).reshape(shape)
    return result


def check_consistency(arrays: Mapping[str, npt.ArrayLike], process_set: ProcessSet = global_process_set) -> None:
    """Raise MismatchError unless every rank has the same arrays, bit for bit. Only checksums are sent.

    Args:
        arrays: by name, in the same order on every rank.
        process_set: the ranks that compare, all of which must call this.

    Raises:
        MismatchError: on every rank. It names the first array that differs, and the ranks where it does.
    """
    named = []
    for name, value in arrays.items():
        array = readable(value)
        named.append(_consistency.Named(name, f"{array.dtype} {list(array.shape)}", for_engine(array)))
    _consistency.compare(named, process_set)
