"""Threads that call back when operations are done."""

from __future__ import annotations

import atexit
import itertools
import os
import threading
from collections.abc import Callable

from ciranda import _core, _init

#: Threads that wait for what is done next, when there is nothing to call. One would do; so a second need not be started
#: whenever the first has something to call.
_MOST_AT_QUEUE = 2


class Completer:
    """Calls back for each operation when it is done, or late, in whatever order that comes about.

    What is called may wait for another operation to be called back for. So threads take turns: before one calls, it
    sees to it that another is there for the rest.
    """

    def __init__(self) -> None:
        self._queue = _core.CompletionQueue()
        self._lock = threading.Lock()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._keys = itertools.count()
        self._threads: set[threading.Thread] = set()
        self._n_at_queue = 0

    def call_when_done(self, operation: _core.Operation, callback: Callable[[], None], seconds: float | None) -> None:
        """Have a thread call once when the operation is done, or the time is over."""
        with self._lock:
            key = next(self._keys)
            self._callbacks[key] = callback
            self._have_one_at_queue()
        self._queue.watch(operation, key, seconds)

    def stop(self, seconds: float = 1.0) -> None:
        """End the threads, once they have called for what is done; leave those that do not end in time."""
        self._queue.close()
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(seconds)

    def _have_one_at_queue(self) -> None:
        if self._n_at_queue == 0:
            self._n_at_queue = 1
            thread = threading.Thread(target=self._run, name="ciranda-futures", daemon=True)
            self._threads.add(thread)
            thread.start()

    def _run(self) -> None:
        try:
            while (key := self._queue.next()) is not None:
                self._leave_queue(key)()
                with self._lock:
                    if self._n_at_queue == _MOST_AT_QUEUE:
                        return
                    self._n_at_queue += 1
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _leave_queue(self, key: int) -> Callable[[], None]:
        with self._lock:
            self._n_at_queue -= 1
            callback = self._callbacks.pop(key)
            if self._callbacks:
                self._have_one_at_queue()
            return callback


#: The one of this process.
_shared = Completer()


def call_when_done(operation: _core.Operation, callback: Callable[[], None], seconds: float | None = None) -> None:
    """Have a thread call once when the operation is done, or so many seconds are over."""
    _shared.call_when_done(operation, callback, seconds)


def _begin_again_after_fork() -> None:
    global _shared
    _shared = Completer()  # the threads are the parent's


def _end() -> None:
    """At exit: what is pending fails, and is called for, while there is still Python to run."""
    _init.shutdown()
    _shared.stop()


os.register_at_fork(after_in_child=_begin_again_after_fork)
atexit.register(_end)
