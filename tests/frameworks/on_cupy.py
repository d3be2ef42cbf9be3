"""Arrays of CuPy, for the conformance suite: by the stand-in on the fake driver (tests/fakes/modules)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import driver
from framework import DTYPES, Array, Call, Framework, results_of

import ciranda


class Adapter(Framework):
    package = "cupy"
    ops = ciranda
    dtypes = tuple(name for name in DTYPES if name != "bfloat16")

    def __init__(self) -> None:
        self._before, self._after = cupy.cuda.Stream(), cupy.cuda.Stream()
        self._before.use()

    def make(self, array: Array) -> Any:
        return cupy.asarray(array)

    def read(self, tensor: Any) -> Array:
        return tensor.get()  # type: ignore[no-any-return]

    def together(self, calls: Sequence[Call]) -> list[list[Any]]:
        """The calls are waited for in another stream than that of the inputs, which it does not wait for."""
        handles = [self._start(call) for call in calls]
        with self._after:
            results = [results_of(self.ops.synchronize(handle)) for handle in handles]
            for tensor in results_of(results):
                tensor.get()
        driver.let_wait(self._before.ptr, self._after.ptr)
        return results

    def blocking(self, call: Call) -> list[Any]:
        (results,) = self.together([call])
        return results

    def finish(self) -> None:
        self._after.synchronize()
