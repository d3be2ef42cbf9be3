"""The end of a process with threads in collectives.

Python waits for non-daemon threads before it calls the functions of `atexit`. A collective that such a thread waits for
may never be done, as this process makes no further calls. So a process whose main thread has called `sys.exit()`, or
failed, leaves the world before that wait, which fails pending calls. If the main thread has ended normally, the other
threads finish first, and so do waits for work that was started and not waited for.

Daemon threads are stopped wherever they are. Those that wait in the engine must be kept there before that: see
`detain_other_threads()`.
"""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from ciranda import _core


class Ending:
    """Calls `leave` when this process ends: before Python waits for threads if it is to end, and at exit."""

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave = leave
        self._is_watching = False
        self._has_exited = False
        self._status: Any = None
        self._finish: list[Callable[[], None]] = []
        atexit.register(self._at_exit)

    def watch(self) -> None:
        """Watch from now on how the main thread ends. Does nothing when called again."""
        if self._is_watching:
            return
        self._is_watching = True
        # As concurrent.futures does, to be called before Python waits for any thread. No public way is as early.
        before_waiting: Any = getattr(threading, "_register_atexit", None)
        if before_waiting is None:
            return
        before_waiting(self._before_waiting_for_threads)
        self._exit = sys.exit
        sys.exit = self._noticed_exit

    def leave_first(self) -> None:
        """At exit, leave before what was registered until now is called: it may wait for ranks that wait for us."""
        atexit.unregister(self._at_exit)
        atexit.register(self._at_exit)

    def finish_first(self, act: Callable[[], None]) -> None:
        """Have `act` called at the end of a main thread that has not failed. Once, however often it is given."""
        if act not in self._finish:
            self._finish.append(act)

    def _noticed_exit(self, status: Any = None, /) -> NoReturn:
        """Exit the interpreter by raising SystemExit(status)."""
        if threading.current_thread() is threading.main_thread():
            self._has_exited, self._status = True, status
        self._exit(status)

    def _before_waiting_for_threads(self) -> None:
        has_failed = getattr(sys, "last_value", None) is not None or self._status not in (None, 0)
        if not has_failed:
            for act in self._finish:
                act()
        if self._has_exited or has_failed:
            self._leave()

    def _at_exit(self) -> None:
        _core.detain_other_threads()
        self._leave()
