"""Prints a digest of this rank's results of reductions that take every way there is: a script for the launcher."""

from __future__ import annotations

import hashlib
import sys

import ml_dtypes
import numpy as np
from expected import Array, values

import ciranda as hvd

TYPES = ("float32", "float64", "float16", "bfloat16", "int32", "complex64")
COUNTS = (1, 300, 5_000, 100_003, 400_000)  # in one shot, two shots, by hosts


def _cancelling(count: int, dtype: str) -> Array:
    """Values of which some cancel: whether the small ones survive depends on who meets whom first."""
    if dtype == "int32":
        return values(hvd.rank(), count, dtype, "sum")
    large = {"float16": 2.0**13}.get(dtype, 2.0**40)
    scale = np.random.default_rng([hvd.rank(), count]).choice([large, -large, 1.0, 1.0], count)
    wide = scale * np.where(np.abs(scale) > 1, 1.0, values(hvd.rank(), count, "float64", "sum", seed=1))
    return wide.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def main() -> None:
    hvd.init()
    digest = hashlib.sha256()
    for dtype in TYPES:
        for count in COUNTS:
            mine = _cancelling(count, dtype)
            for op in (hvd.Sum, hvd.Average):
                for _ in range(2):  # the second time its name is known
                    total = hvd.allreduce(mine, op=op, name=f"{dtype} {count} {op}")
                    digest.update(total.tobytes())
    sys.stdout.write(digest.hexdigest() + "\n")
    hvd.shutdown()


if __name__ == "__main__":
    main()
