"""Handles of collectives under way, as torch.distributed knows them."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

import torch
import torch.distributed

from ciranda import _core

Tensor = torch.Tensor

# Its own annotations leave much of it out.
dist: Any = torch.distributed


class _Completer:
    """A thread that sleeps until operations whose futures somebody wants are done, in the order of asking."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Work] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, work: Work) -> None:
        if threading.current_thread() is self._thread:
            # What a future calls when it is complete makes another one: it may wait for that.
            threading.Thread(target=work.complete_future, name="ciranda-future", daemon=True).start()
            return
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="ciranda-futures", daemon=True)
                self._thread.start()
        self._queue.put(work)

    def _run(self) -> None:
        while True:
            self._queue.get().complete_future()


_completer = _Completer()
#: The function of torch that makes a backward pass: what calls from C++ meanwhile seems to be called by it.
_BACKWARD = "_engine_run_backward"
_autograd_engine: Any = torch.autograd.Variable._execution_engine


class Work(dist._Work):  # type: ignore[misc, unused-ignore]
    """A collective under way. Whoever waits for it drives the engine."""

    def __init__(
        self,
        operation: _core.Operation,
        result: list[Tensor],
        finish: Callable[[_core.Operation], None],
        timeout: timedelta | None = None,
    ) -> None:
        super().__init__()
        self._timeout = timeout
        self._operation = operation
        self._result = result
        self._finish: Callable[[_core.Operation], None] | None = finish
        self._lock = threading.Lock()
        self._future: torch.futures.Future[list[Tensor]] | None = None
        self._is_future_taken = False

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return when the operation is done; without a timeout, or with one of 0, that of the group holds.

        Raises:
            DistBackendError: (torch's, a RuntimeError) the time is over. The operation goes on; its tensors are in use.
        """
        self._wait_for_operation(timeout or self._timeout)
        with self._lock:
            finish, self._finish = self._finish, None
            if finish is not None:
                finish(self._operation)
        return True

    def _wait_for_operation(self, timeout: timedelta | None) -> None:
        if timeout is None:
            self._operation.wait()
            return
        try:
            self._operation.wait(timeout.total_seconds())
        except TimeoutError as error:
            if self._operation.poll():
                raise  # it is what the operation failed with
            raise dist.DistBackendError(
                f"a collective of the backend ciranda was not done within {timeout.total_seconds():g} s; some rank has "
                "not called it, or is slow. It goes on, and uses its tensors: do not touch them"
            ) from error

    def is_completed(self) -> bool:
        return self._operation.poll()

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        try:
            if self._operation.poll():
                self.wait()
        except Exception as error:
            return error
        return None

    def result(self) -> list[Tensor]:
        self.wait()
        return self._result

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> torch.futures.Future[list[Tensor]]:
        with self._lock:
            if self._future is not None:
                return self._future
            self._future = torch.futures.Future()
        if sys._getframe(1).f_code.co_name == _BACKWARD:
            # It is DistributedDataParallel itself that asks, not a hook: it waits when the backward pass ends. Just
            # before that the same thread drives the engine, which saves handing over to others.
            _autograd_engine.queue_callback(self._drive_future)
        else:
            _completer.add(self)
        return self._future

    def complete_future(self) -> None:
        """Sleep until the operation is done, then complete the future."""
        timeout = self._timeout
        with contextlib.suppress(Exception):  # shut down; wait() says so
            self._operation.sleep_until_done(None if timeout is None else timeout.total_seconds())
        self._drive_future()

    def _drive_future(self) -> None:
        assert self._future is not None
        if self._future.done():
            return
        error: Exception | None = None
        try:
            self.wait()
        except Exception as raised:
            error = raised
        with self._lock:
            if self._is_future_taken:
                return
            self._is_future_taken = True
        if error is not None:
            self._future.set_exception(error)  # type: ignore[arg-type]
        else:
            self._future.set_result(self._result)
