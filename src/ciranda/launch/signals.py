"""Signals as something that an event loop can wait for."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ciranda.launch.processes import END_SIGNALS, PASSED_ON, takes


@contextmanager
def signals_to(received: list[int]) -> Iterator[int]:
    """While in it, END_SIGNALS and PASSED_ON are appended to ``received`` and make the yielded descriptor readable.

    Signals that were ignored (nohup, background jobs) stay so; those that a program which calls this may use itself,
    as SIGALRM, stay its own. In other threads than the main one nothing is changed.
    """
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    os.set_blocking(write_fd, False)
    previous: dict[signal.Signals, object] = {}
    old_wakeup = -1
    try:
        if threading.current_thread() is threading.main_thread():
            old_wakeup = signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
            for number in (*END_SIGNALS, *PASSED_ON):
                if _is_free(number):
                    previous[number] = signal.signal(number, lambda n, _frame: received.append(n))
        yield read_fd
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        if threading.current_thread() is threading.main_thread():
            signal.set_wakeup_fd(old_wakeup)
        os.close(read_fd)
        os.close(write_fd)


class InterruptedBySignalError(Exception):
    """A signal that ends the job has come.

    Attributes:
        number: the signal's.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def interruptible() -> Iterator[None]:
    """While in it, SIGTERM and its like raise InterruptedBySignalError, also in a container's first process.

    The system does not deliver signals to that one that it does not handle.
    """

    def interrupt(number: int, _frame: object) -> None:
        raise InterruptedBySignalError(number)

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    previous = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _is_free(number: signal.Signals) -> bool:
    if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        return signal.getsignal(number) is not signal.SIG_IGN
    return not takes(os.getpid(), number)  # which sees handlers in C too, as faulthandler's


def empty(fd: int) -> None:
    """Take what the signals left in the pipe."""
    with suppress(BlockingIOError):
        while os.read(fd, 4096):
            pass
