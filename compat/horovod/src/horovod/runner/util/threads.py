"""`horovod.runner.util.threads`: functions in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

__all__ = ["execute_function_multithreaded", "in_thread", "on_event"]


def execute_function_multithreaded(
    fn: Callable[..., Any],
    args_list: Sequence[Sequence[Any]],
    block_until_all_done: bool = True,
    max_concurrent_executions: int = 1000,
) -> dict[int, Any] | None:
    """Call `fn(*args)` for each args of the list, in threads; return what each call returned, by its place.

    Returns None at once with `block_until_all_done=False`. What a call raises is raised here.
    """
    if not args_list:
        return {}
    pool = ThreadPoolExecutor(min(max_concurrent_executions, len(args_list)))
    futures: list[Future[Any]] = [pool.submit(fn, *args) for args in args_list]
    pool.shutdown(wait=block_until_all_done)
    return {place: future.result() for place, future in enumerate(futures)} if block_until_all_done else None


def in_thread(
    target: Callable[..., Any],
    args: Iterable[Any] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Start a thread that calls `target(*args)`; with `silent`, what it raises is not shown."""
    arguments = tuple(args)

    def body() -> None:
        try:
            target(*arguments)
        except Exception:
            if not silent:
                raise

    thread = threading.Thread(target=body, name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(
    event: threading.Event,
    func: Callable[..., Any],
    args: Iterable[Any] = (),
    stop: threading.Event | None = None,
    check_stop_interval_s: float = 1.0,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Start a thread that calls `func(*args)` when `event` is set, or ends when `stop` is."""
    arguments = tuple(args)

    def body() -> None:
        while not event.wait(None if stop is None else check_stop_interval_s):
            if stop is not None and stop.is_set():
                return
        func(*arguments)

    return in_thread(body, daemon=daemon, silent=silent)
