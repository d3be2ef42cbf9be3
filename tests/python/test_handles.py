"""Handles that several threads wait for, and results that could not be made at the first attempt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import ciranda as hvd
from ciranda import _ops
from ciranda.numpy.arrays import bring_back

pytestmark = pytest.mark.usefixtures("alone")


class _Slow:
    """Calls a function as slowly as it takes another thread to come back too early."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._other_is_back = threading.Event()
        self.is_called = threading.Event()
        self.n_calls = 0

    def __call__(self, *arguments: Any) -> Any:
        self.n_calls += 1
        self.is_called.set()
        self._other_is_back.wait(0.2)
        return self._function(*arguments)

    def waited_for_by_two(self, wait: Callable[[], Any]) -> list[Any]:
        def wait_as_second() -> Any:
            self.is_called.wait()
            result = wait()
            self._other_is_back.set()
            return result

        with ThreadPoolExecutor(2) as pool:
            return [each.result() for each in (pool.submit(wait), pool.submit(wait_as_second))]


def test_two_threads_that_wait_for_a_handle_get_the_same_result() -> None:
    output = np.ones(3)
    slow = _Slow(lambda _: output)
    handle = _ops.Handle(hvd.barrier_async()._operation, slow)
    assert all(result is output for result in slow.waited_for_by_two(handle.then(lambda result: result).wait))
    assert slow.n_calls == 1
    assert handle.wait() is output


def test_a_tensor_is_brought_back_before_any_thread_has_waited_for_it() -> None:
    work, tensor = np.ones(3), np.zeros(3)
    slow = _Slow(bring_back)
    handle = _ops.InPlaceHandle(hvd.barrier_async()._operation, slow, work, tensor)
    seen = slow.waited_for_by_two(lambda: handle.wait().copy())
    assert [each.tolist() for each in seen] == [[1.0] * 3] * 2
    tensor[...] = 2
    assert handle.wait().tolist() == [2.0] * 3
    assert slow.n_calls == 1


def _fails_twice() -> Callable[[object], str]:
    attempts = iter([KeyboardInterrupt(), ValueError("no room")])

    def finish(_: object) -> str:
        for error in attempts:
            raise error
        return "made"

    return finish


def test_a_result_that_could_not_be_made_is_made_by_the_next_wait() -> None:
    handle = _ops.Handle(hvd.barrier_async()._operation, _fails_twice())
    with pytest.raises(KeyboardInterrupt):
        handle.wait()
    with pytest.raises(ValueError, match="no room"):
        handle.wait()
    assert handle.wait() == "made"


def test_who_waits_behind_a_thread_that_fails_makes_the_result() -> None:
    attempts = iter([ValueError("no room"), None])

    def finish(_: object) -> str:
        if error := next(attempts):
            raise error
        return "made"

    slow = _Slow(finish)
    handle = _ops.Handle(hvd.barrier_async()._operation, slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(handle.wait)
        slow.is_called.wait()
        second = pool.submit(handle.wait)
        assert str(first.exception()) == "no room"
        assert second.result() == "made"
    assert slow.n_calls == 2
    assert handle.wait() == "made"


def test_two_threads_that_wait_for_a_sparse_reduction_get_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from ciranda.torch import sparse

    tensor = torch.eye(300).to_sparse()
    slow = _Slow(sparse._check_alike)
    monkeypatch.setattr(sparse, "_check_alike", slow)
    reduction = sparse.sparse_allreduce_async(tensor, "sparse", hvd.Sum)
    for result in slow.waited_for_by_two(reduction.wait):
        assert torch.equal(result.to_dense(), tensor.to_dense())
    assert slow.n_calls == 1


def test_a_result_of_torch_distributed_that_could_not_be_made_is_made_by_the_next_wait() -> None:
    pytest.importorskip("torch")
    from ciranda.torch.distributed.work import Work

    made = []
    finish = _fails_twice()
    work = Work(hvd.barrier_async()._operation, [], lambda done: made.append(finish(done)))
    with pytest.raises(KeyboardInterrupt):
        work.wait()
    with pytest.raises(ValueError, match="no room"):
        work.wait()
    assert work.wait()
    assert work.wait()
    assert made == ["made"]
