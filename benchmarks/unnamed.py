"""The time of a blocking allreduce of 4 B without a name, beside one with a name.

    ciranda run -np 2 python benchmarks/unnamed.py

The best of many short series each, in turns; a last line of both and their ratio, which `make guard` reads.
"""

from __future__ import annotations

import time

import numpy as np

import ciranda

CALLS = 200
SERIES = 100


def series(name: str | None) -> float:
    """Microseconds for each of some calls."""
    values = np.ones(1, dtype=np.float32)
    began = time.perf_counter()
    for _ in range(CALLS):
        ciranda.allreduce(values, name=name, op=ciranda.Sum)
    return (time.perf_counter() - began) / CALLS * 1e6


def main() -> None:
    ciranda.init()
    named = unnamed = float("inf")
    for _ in range(SERIES):
        named = min(named, series("named"))
        unnamed = min(unnamed, series(None))
    if ciranda.rank() == 0:
        print(f"named {named:.2f} us, unnamed {unnamed:.2f} us, ratio {unnamed / named:.2f}")
    ciranda.shutdown()


if __name__ == "__main__":
    main()
