"""The time of allreduces of 4 KiB that end by callback, beside the same waited for: 1, 4 and 100 in flight.

    ciranda run -np 2 python benchmarks/called_back.py

The best of many rounds each, in turns: from the first submission to the end of the last call. The callback is what
Python's futures are told by: it hands a key to a queue, and the thread that takes the keys sleeps until there is one. A
line for each number in flight; the last word is the greatest ratio, which `make guard` reads.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

import ciranda
from ciranda import _core
from ciranda._basics import engine
from ciranda._ops import ALLREDUCE, terms_of

IN_FLIGHT = (1, 4, 100)
ROUNDS = 300
N_BYTES = 4096


def submit(tensors: Sequence[np.ndarray], is_deferrable: bool) -> list[_core.Operation]:
    """A call for each, all in flight."""
    terms, how = terms_of(ALLREDUCE), _core.DEFERRABLE if is_deferrable else 0
    return [engine().submit(terms, tensor, tensor, f"called.back.{i}", how=how) for i, tensor in enumerate(tensors)]


def waited(tensors: Sequence[np.ndarray]) -> float:
    """Seconds until all have been waited for."""
    began = time.perf_counter()
    _core.wait_all(submit(tensors, is_deferrable=True))
    return time.perf_counter() - began


def called_back(tensors: Sequence[np.ndarray], queue: _core.CompletionQueue) -> float:
    """Seconds until the queue has said of all that they are done."""
    began = time.perf_counter()
    for key, operation in enumerate(submit(tensors, is_deferrable=False)):
        queue.watch(operation, key)
    for _ in tensors:
        queue.next()
    return time.perf_counter() - began


def main() -> None:
    ciranda.init()
    queue = _core.CompletionQueue()
    ratios = []
    for n in IN_FLIGHT:
        tensors = [np.zeros(N_BYTES // 4, dtype=np.float32) for _ in range(n)]
        best = {waited: float("inf"), called_back: float("inf")}
        for _ in range(ROUNDS):
            ciranda.barrier()
            best[waited] = min(best[waited], waited(tensors))
            ciranda.barrier()
            best[called_back] = min(best[called_back], called_back(tensors, queue))
        ratios.append(best[called_back] / best[waited])
        if ciranda.rank() == 0:
            us = {way: seconds * 1e6 for way, seconds in best.items()}
            print(f"{n} in flight: waited {us[waited]:.1f} us, called back {us[called_back]:.1f} us", end=", ")
            print(f"ratio {ratios[-1]:.2f}")
    if ciranda.rank() == 0:
        print(f"greatest ratio {max(ratios):.2f}")
    queue.close()
    ciranda.shutdown()


if __name__ == "__main__":
    main()
