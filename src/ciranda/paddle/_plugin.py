"""The operators of programs, registered with Paddle: those of a library, or Python functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle.utils.cpp_extension.extension_utils import load_op_meta_info_and_register_op

from ciranda._basics import at_end
from ciranda._frameworks import plugin
from ciranda._frameworks.looks import Looks, bytes_at
from ciranda.errors import NotSupportedError
from ciranda.paddle import _building, _py_func, _py_op

#: "ahead", "jit" or "py_func": the only one to try, for tests; by default the first that works.
CHOICE = "CIRANDA_PADDLE_OPS"


class Build(Enum):
    """Where the operators come from."""

    AHEAD = "ahead"
    JIT = "jit"
    PY_FUNC = "py_func"


_SAID = {
    Build.AHEAD: "has taken the operators, made when the package was built",
    Build.JIT: "has taken the operators, compiled just in time on this machine",
    Build.PY_FUNC: "calls the operators as Python functions (py_func)",
}


@dataclass(frozen=True)
class _Taken:
    build: Build
    path: Path | None = None
    library: Any = None
    #: The reasons why the choices before it failed.
    why: str = ""


def _of_library(build: Build, find: Callable[[], Path]) -> _Taken:
    path = find()
    try:
        load_op_meta_info_and_register_op(str(path))
        return _Taken(build, path, plugin.opened("paddle", paddle.__version__, path))
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        raise _building.CannotBuildError(f"{path} does not fit Paddle {paddle.__version__}: {error}") from error


_FINDERS = {Build.AHEAD: _building.made_ahead, Build.JIT: _building.just_in_time}


@cache
def _taken() -> _Taken:
    """Register the operators with Paddle, once in a process: those of the first library that works."""
    choice = os.environ.get(CHOICE, "")
    whys = []
    for build, find in _FINDERS.items():
        if choice not in ("", build.value):
            whys.append(f"{CHOICE}={choice}")
            continue
        try:
            taken = _of_library(build, find)
        except _building.CannotBuildError as error:
            whys.append(str(error))
        else:
            at_end.append(taken.library.ciranda_paddle_begin_anew)
            return taken
    paddle.set_flags({_py_func.IN_ORDER: True})
    return _Taken(Build.PY_FUNC, why="; ".join(dict.fromkeys(whys)))


def load() -> Build:
    """Register the operators with Paddle, once in a process; return where they come from."""
    return _taken().build


def require_operators(what: str, is_pir: bool) -> None:
    """Register the operators.

    Raises:
        NotSupportedError: a program of PIR, without a library, in a Paddle without Python operators.
    """
    if load() is not Build.PY_FUNC:
        return
    if is_pir and not _py_op.is_there():
        raise NotSupportedError(
            f"{what}: PIR has no operators that are Python functions before Paddle 3.3, this is {paddle.__version__}, "
            f"and there is no library of the operators: {_taken().why}. Make one possible (a C++ compiler), take "
            "Paddle 3.3 or newer, or write the program in the old IR (Paddle 2.6; in 3.0, within "
            "paddle.pir_utils.OldIrGuard())"
        )
    _py_func.raise_failures()


def require_library(what: str) -> None:
    """Register the operators. Raises NotSupportedError, with the reason, if there is no library of them."""
    if load() is Build.PY_FUNC:
        raise NotSupportedError(f"{what} needs the operators' library: {_taken().why}")


def live_calls() -> int:
    """Return the number of collectives of programs that have been started and not waited for."""
    taken = _taken()
    return _py_func.live_calls() if taken.library is None else int(taken.library.ciranda_plugin_live_calls())


def set_interval(name: str, every: int) -> None:
    """Make a start of that name communicate in every `every`-th run from now on; 0: by its attribute."""
    taken = _taken()
    if taken.library is None:
        _py_func.set_interval(name, every)
    else:
        taken.library.ciranda_paddle_set_interval(name.encode(), every)


@cache
def _looks() -> Looks:
    return Looks(_taken().library)


def _shown(addresses: Sequence[int]) -> Iterator[_py_func.Array]:
    """Return the memory of the tensors of a look of the library, whose sizes in bytes come first."""
    sizes, *tensors = addresses
    return map(bytes_at, tensors, bytes_at(sizes, 8 * len(tensors)).view(np.int64).tolist())


def add_look(name: str, see: _py_func.See) -> str:
    """Return the name of a new look, an operator that shows tensors to Python: `name` with a number."""
    if load() is Build.PY_FUNC:
        return _py_func.add_look(name, see)
    return _looks().add(name, lambda addresses: see(_shown(addresses)))


def describe() -> str:
    """Return the findings for `ciranda doctor`."""
    taken = _taken()
    found = f"Paddle {paddle.__version__} {_SAID[taken.build]}"
    return f"{found}, as {taken.why}" if taken.path is None else f"{found} ({taken.path})"
