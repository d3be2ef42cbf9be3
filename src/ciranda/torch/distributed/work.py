"""Handles of pending collectives, in the form of torch.distributed."""

from __future__ import annotations

import copy
import itertools
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from ciranda import _core
from ciranda.torch.completer import call_when_done
from ciranda.torch.distributed.gpu_streams import GpuStreams
from ciranda.torch.distributed.offers import Offers, pause_seconds
from ciranda.torch.distributed.recording import Span, part_of

Tensor = torch.Tensor

# Its own annotations leave much of it out.
dist: Any = torch.distributed


#: The function of torch that makes a backward pass: what calls from C++ meanwhile seems to be called by it.
_BACKWARD = "_engine_run_backward"
_ACCUMULATE = "torch::autograd::AccumulateGrad"
_autograd_engine: Any = torch.autograd.Variable._execution_engine
_node_under_way: Callable[[], Any] = getattr(torch._C, "_current_autograd_node", lambda: None)


def is_called_by_backward(n_frames: int) -> bool:
    """Whether torch's C++ calls from a backward pass, as DDP does without a hook, by the frame that seems to call.

    Args:
        n_frames: how many frames are between the caller of this function and that one.
    """
    try:
        return sys._getframe(n_frames + 2).f_code.co_name == _BACKWARD
    except ValueError:  # a thread of torch, without any frame of Python
        return False


def _call_at_end_of_backward(callback: Callable[[], None]) -> bool:
    """Queue a final callback of the running backward pass, if it runs before DDP waits; return whether it does.

    DDP reduces a bucket right after the gradient of a parameter was accumulated, and queues the callback that waits
    after that of the last bucket. But in the first step of a static graph it does both in one final callback: what is
    queued there comes too late.
    """
    node = _node_under_way()
    if node is None or node.name() != _ACCUMULATE:
        return False
    _autograd_engine.queue_callback(callback)
    return True


def _value(done: torch.futures.Future[list[Tensor]]) -> list[Tensor]:
    return done.value()


def late(timeout: timedelta) -> Exception:
    """Return the error of a wait that took too long."""
    error: Exception = dist.DistBackendError(
        f"a collective of the backend ciranda was not done within {timeout.total_seconds():g} s; some rank has "
        "not called it, or is slow. It continues, and uses its tensors: do not touch them"
    )
    return error


def _set_exception(future: Any, error: Exception) -> None:
    """Complete a future with a failure, as its set_exception() does, but have each value() raise a copy.

    The future must not hold an error that is raised: its traceback refers to all frames of the stack, among them those
    of a cut backward pass, whose model's wrapper holds the future. The cycle goes through objects of C++, so the
    collector would not find it, and the wrapper would never be freed.
    """
    future._set_unwrap_func(_raise_copy)
    future.set_result(copy.copy(error))


def _raise_copy(error: Exception) -> None:
    raise copy.copy(error)


class Work(dist._Work):  # type: ignore[misc, unused-ignore]
    """A pending collective. A thread that waits for it runs the progress loop."""

    def __init__(
        self,
        operation: _core.Operation,
        result: list[Tensor],
        finish: Callable[[_core.Operation], None],
        timeout: timedelta | None = None,
        offers: Offers | None = None,
    ) -> None:
        super().__init__()
        self._timeout = timeout
        self._offers = offers
        self._operation = operation
        self._result = result
        self._finish: Callable[[_core.Operation], None] | None = finish
        self._streams = GpuStreams(result)
        self._span: Span | None = None  # in a profile
        self._lock = threading.Lock()
        self._completion: torch.futures.Future[list[Tensor]] | None = None
        self._future: torch.futures.Future[list[Tensor]] | None = None  # the same, or follows it

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return when the operation is done; without a timeout, or with one of 0, that of the group holds.

        For tensors on a GPU: what this thread's current stream is given afterwards sees the results.

        Raises:
            DistBackendError: (torch's, a RuntimeError) after the timeout. The operation continues; its tensors are in
                use.
        """
        with part_of(self._span, "wait"):
            self._wait_for_operation(timeout or self._timeout)
        if self._span is not None:
            self._span.wait_for_end()
        with self._lock:
            if self._finish is not None:
                with part_of(self._span, "finish"):
                    self._finish(self._operation)
                self._finish = None  # if it failed, the next wait tries again
                self._streams.note_finish()
            else:
                self._streams.wait_for_finish()
        return True

    def _wait_for_operation(self, timeout: timedelta | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout.total_seconds()
        for n_looks in itertools.count():
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            is_open = self._offers is not None and self._offers.are_open()
            pause = pause_seconds(n_looks) if is_open else None
            if self._is_done_within(min((each for each in (left, pause) if each is not None), default=None)):
                return
            if timeout is not None and left == 0.0:
                raise late(timeout)
            if self._offers is not None:
                self._offers.make()

    def _is_done_within(self, seconds: float | None) -> bool:
        try:
            self._operation.wait(seconds)
        except TimeoutError:
            if not self._operation.poll():
                return False
            self._operation.wait()  # it is done by now, or this is what it failed with
        return True

    def record(self, span: Span) -> None:
        """Show it in a profile."""
        self._span = span
        call_when_done(self._operation, span.end)

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
        # A hook of DDP, or anyone else's function, may wait for the future at once.
        is_asked_by_ddp = is_called_by_backward(0)
        return self.future_for_ddp() if is_asked_by_ddp else self._future_by_another_thread()

    def future_for_ddp(self) -> torch.futures.Future[list[Tensor]]:
        """Return a future for which DDP waits when the backward pass ends.

        Just before that the same thread runs the progress loop, if it can: this saves a hand-over to other threads.
        """
        with self._lock:
            if self._future is None and _call_at_end_of_backward(self._complete_in_backward):
                self._completion = self._future = self._streams.make_future()
                return self._future
        return self._future_by_another_thread()

    def _future_by_another_thread(self) -> torch.futures.Future[list[Tensor]]:
        with self._lock:
            if self._future is not None:
                return self._future
            self._completion = self._streams.make_future()
            # torch's C++ takes what set_exception() sets for a result, but not what a callback has raised.
            future = self._future = self._completion.then(_value)
        seconds = None if self._timeout is None else self._timeout.total_seconds()
        call_when_done(self._operation, self._complete_when_done, seconds)
        return future

    def _complete_in_backward(self) -> None:
        error = self._complete()
        if error is not None:
            raise error  # it ends the backward pass, before DDP reads the future

    def _complete_when_done(self) -> None:
        """Complete the future. The operation is done, or late."""
        if self._timeout is not None and not self._operation.poll():
            self._settle(late(self._timeout))
        else:
            with self._streams.of_their_own():
                self._complete()

    def _complete(self) -> Exception | None:
        """Complete the future when the operation is done; return what it failed with."""
        error: Exception | None = None
        try:
            self.wait()
        except Exception as failure:
            error = failure
        self._settle(error)
        return error

    def _settle(self, error: Exception | None) -> None:
        assert self._completion is not None
        if error is not None:
            _set_exception(self._completion, error)
        else:
            self._completion.set_result(self._result)
