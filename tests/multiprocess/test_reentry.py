"""Python code that calls in again in the middle of a call: finalizers of tensors, and what lends their memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ranks import Ranks

import ciranda as hvd
from ciranda import _basics, _core
from ciranda._ops import ALLREDUCE, terms_of

pytestmark = pytest.mark.multiprocess

_LARGE, _SMALL = 1000, 4
_SECONDS = 120.0  # for what takes milliseconds


def _inner() -> None:
    hvd.within = sys._getframe(2).f_code.co_name  # type: ignore[attr-defined]
    hvd.allreduce(np.ones(_LARGE, np.float32), op=hvd.Sum, name="inner")


class _Finalized(np.ndarray):  # type: ignore[type-arg]
    """An array that runs a function when it is freed."""

    then: Callable[[], object]

    def __del__(self) -> None:
        self.then()


def _finalized(then: Callable[[], object]) -> _Finalized:
    array = _Finalized(_SMALL, np.float32)
    array[...] = 1
    array.then = then
    return array


def _agree_on_large() -> None:
    for _ in range(4):
        hvd.allreduce_(np.ones(_LARGE, np.float32), op=hvd.Sum, name="outer")
        _inner()


def _drop_one_under_way(then: Callable[[], object]) -> None:
    hvd.dropped = hvd.allreduce_async(_finalized(then), name="dropped")  # type: ignore[attr-defined]
    hvd.last = hvd.barrier_async()  # type: ignore[attr-defined]
    del hvd.dropped  # type: ignore[attr-defined]


def _complete_dropped() -> None:
    if hvd.rank() > 0:
        hvd.allreduce(np.ones(_SMALL, np.float32), name="dropped")
        hvd.barrier()
    else:
        hvd.last.wait()  # type: ignore[attr-defined]


def _call_outer() -> tuple[list[float], list[float]]:
    """In place, on the beginning of a longer array; what becomes of that and of the rest."""
    if hvd.rank() > 0:
        _inner()
    array = np.ones(_LARGE, np.float32)
    part = array[:_SMALL]
    hvd.allreduce_(part, op=hvd.Sum, name="outer")
    assert hvd.rank() > 0 or hvd.within == "allreduce_"  # type: ignore[attr-defined]
    return np.unique(part).tolist(), np.unique(array[_SMALL:]).tolist()


def test_a_finalizer_that_a_call_runs_may_call_in_again(worlds: Any) -> None:
    """It comes to run where the call lets go of what was dropped while it was under way."""
    world: Ranks = worlds.of(2)
    world.run(_agree_on_large, timeout=_SECONDS)
    for _ in range(5):  # that nothing else is under way, and the call is a repeated one, is likely only
        world.run(_drop_one_under_way, _inner, on=[0], timeout=_SECONDS)
        world.run(_complete_dropped, timeout=_SECONDS)
        assert world.run(_call_outer, timeout=_SECONDS) == [([2.0], [1.0])] * 2
        world.run(_agree_on_large, timeout=_SECONDS)


class _Lender:
    """Lends the memory of an array by a method that makes another call."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        _run(np.ones(_LARGE, np.float32), np.empty(_LARGE, np.float32), "inner")
        return self._array.__dlpack__(**options)


def _run(tensor: object, output: object, name: str) -> None:
    _basics.engine().run(terms_of(ALLREDUCE), tensor, output, name)


def _outputs_that_do_not_fit() -> tuple[str, list[float]]:
    for _ in range(4):
        _run(np.ones(_LARGE, np.float32), np.empty(_LARGE, np.float32), "lent")
        _run(np.ones(_LARGE, np.float32), np.empty(_LARGE, np.float32), "inner")
    room = np.zeros(_LARGE, np.float32)
    with pytest.raises(hvd.errors.InvalidArgumentError) as caught:
        _run(_Lender(np.ones(_LARGE, np.float32)), room[:_SMALL], "lent")
    return str(caught.value), np.unique(room).tolist()


def test_an_output_is_checked_though_reading_the_input_makes_another_call(worlds: Any) -> None:
    for message, room in worlds.of(2).run(_outputs_that_do_not_fit, timeout=_SECONDS):
        assert message == "the output is float32[4] but the input is float32[1000]"
        assert room == [0.0]


def _finalizers_at_the_end_of_a_wait() -> list[str]:
    """They change the list that is waited for, and wait for the same operation again."""
    engine = _basics.engine()
    ran = []
    operations: list[_core.Operation] = []

    def change() -> None:
        ran.append("change")
        operations[0].wait()
        operations.clear()

    for index, array in enumerate([_finalized(change), *(np.ones(_SMALL, np.float32) for _ in range(3))]):
        operations.append(engine.submit(terms_of(ALLREDUCE), array, array, f"at the end {index}", how=0))
    del array
    _core.wait_all(operations)
    for again in range(100):  # in the memory of what was freed too early
        hvd.allreduce_async(np.ones(_SMALL, np.float32), name=f"after {again}").wait()
    return ran


def test_a_wait_bears_finalizers_that_change_what_it_waits_for(worlds: Any) -> None:
    assert worlds.of(2).run(_finalizers_at_the_end_of_a_wait, timeout=_SECONDS) == [["change"]] * 2
