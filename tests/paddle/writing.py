"""Programs for the tests of ciranda.paddle: of the IR that this Paddle writes by default, or of the old one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import paddle

import ciranda.paddle as hvd  # before paddle, of which the oldest version needs it so

HAS_PIR = not paddle.__version__.startswith("2.")
#: Where Paddle's functions still write programs of the old IR.
HAS_OLD = not HAS_PIR or paddle.__version__.startswith("3.0")


@contextmanager
def mode(is_old: bool = False) -> Iterator[None]:
    """Write and run programs, of the old IR or of the usual one, within this."""
    paddle.enable_static()
    try:
        with paddle.pir_utils.OldIrGuard() if is_old and HAS_PIR else nullcontext():
            yield
    finally:
        paddle.disable_static()


@contextmanager
def static(is_old: bool = False) -> Iterator[tuple[Any, Any]]:
    """Write a program, and its startup program, within this."""
    with mode(is_old):
        main, startup = paddle.static.Program(), paddle.static.Program()
        with paddle.utils.unique_name.guard(), paddle.static.program_guard(main, startup):
            yield main, startup


@contextmanager
def running(program: Any) -> Iterator[Any]:
    """Give an executor, in a scope of its own."""
    with mode(isinstance(program, paddle.base.framework.Program)), paddle.static.scope_guard(paddle.static.Scope()):
        yield paddle.static.Executor(paddle.CPUPlace())


def run(program: Any, feed: Mapping[str, Any], fetch: list[Any], startup: Any = None) -> list[Any]:
    """Run a program in a scope of its own."""
    with running(program) as exe:
        if startup is not None:
            exe.run(startup)
        return list(exe.run(program, feed=dict(feed), fetch_list=fetch))


def close(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(found, np.float64), np.asarray(wanted, np.float64), tolerance, tolerance)


def raised(attempt: Callable[[], Any]) -> BaseException:
    try:
        result = attempt()
    except Exception as error:
        return error
    raise AssertionError(f"no error, but {result!r}")


def inputs(*shape: int, seed: int = 0) -> Any:
    """What every rank brings."""
    return np.random.default_rng(seed).normal(size=(hvd.size(), *shape)).astype(np.float32)
