"""The operators of programs, registered with Paddle."""

from __future__ import annotations

import os
from enum import Enum
from functools import cache
from pathlib import Path

import paddle
from paddle.utils.cpp_extension.extension_utils import load_op_meta_info_and_register_op

from ciranda._frameworks import plugin
from ciranda.errors import NotSupportedError
from ciranda.paddle import _building

#: "ahead", "jit" or "py_func": which of the three to use, for tests; by default the first that there is.
CHOICE = "CIRANDA_PADDLE_OPS"


class Build(Enum):
    """Where the operators come from."""

    AHEAD = "made when the package was built"
    JIT = "compiled on this machine"
    PY_FUNC = "py_func, as no library can be made"


@cache
def _found() -> tuple[Build, Path | None, str]:
    """Return which of the three is in use, the library, and why there is none."""
    choice = os.environ.get(CHOICE, "")
    ahead = _building.made_ahead()
    if ahead is not None and choice in ("", "ahead"):
        return Build.AHEAD, ahead, ""
    if choice == "py_func":
        return Build.PY_FUNC, None, f"{CHOICE} says so"
    try:
        return Build.JIT, _building.just_in_time(), ""
    except _building.CannotBuildError as error:
        return Build.PY_FUNC, None, str(error)


@cache
def load() -> Build:
    """Register the operators with Paddle, once in a process; return where they come from."""
    build, path, _ = _found()
    if path is not None:
        load_op_meta_info_and_register_op(str(path))
        plugin.opened("paddle", paddle.__version__, path)
    return build


def require_library(what: str) -> None:
    """Register the operators. Raises NotSupportedError if there is only py_func, saying why."""
    if load() is Build.PY_FUNC:
        raise NotSupportedError(f"{what} needs the operators' library: {_found()[2]}")


def live_calls() -> int:
    """How many collectives of programs have been started and not waited for."""
    build, path, _ = _found()
    if build is Build.PY_FUNC or (load() is build and path is None):
        return 0
    return int(plugin.opened("paddle", paddle.__version__, path).ciranda_plugin_live_calls())


def describe() -> str:
    """Return what was found, for `ciranda doctor`."""
    build, path, why = _found()
    load()
    where = f" ({path})" if path else f": {why}"
    return f"Paddle {paddle.__version__} has taken the operators, {build.value}{where}"
