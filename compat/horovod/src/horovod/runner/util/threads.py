"""`horovod.runner.util.threads`: functions in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
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
    args: tuple[Any, ...] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Start a thread that calls `target(*args)`; with `silent`, what it raises is not shown.

    Raises:
        ValueError: `args` is no tuple.
    """
    _check_tuple(args)

    def body() -> None:
        try:
            target(*args)
        except Exception:
            if not silent:
                raise

    thread = threading.Thread(target=body, name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(
    event: threading.Event,
    func: Callable[..., Any],
    args: tuple[Any, ...] = (),
    stop: threading.Event | None = None,
    check_stop_interval_s: float = 1.0,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Start a thread that calls `func(*args)` when `event` is set, or ends when `stop` is, also if both are.

    Args:
        event, func, args: what it waits for and then does.
        stop: looked at whenever `event` has not been set for `check_stop_interval_s` seconds, and before `func`.
        check_stop_interval_s: see `stop`.
        daemon, silent: as for `in_thread`.

    Raises:
        ValueError: there is no event, or `args` is no tuple.
    """
    if event is None:
        raise ValueError("on_event() needs an event to wait for; got None")
    _check_tuple(args)

    def body() -> None:
        while not event.wait(None if stop is None else check_stop_interval_s):
            if stop is not None and stop.is_set():
                return
        if stop is None or not stop.is_set():
            func(*args)

    return in_thread(body, daemon=daemon, silent=silent)


def _check_tuple(args: object) -> None:
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, as in (argument,), not {type(args).__name__}")
