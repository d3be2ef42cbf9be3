"""The operators of programs, registered with Paddle."""

from __future__ import annotations

import os
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import paddle
from paddle.utils.cpp_extension.extension_utils import load_op_meta_info_and_register_op

from ciranda._frameworks import plugin
from ciranda.errors import NotSupportedError
from ciranda.paddle import _building

#: "ahead", "jit" or "none": which to use, for tests; by default the first that there is.
CHOICE = "CIRANDA_PADDLE_OPS"


class Build(Enum):
    """Where the operators come from."""

    AHEAD = "made when the package was built"
    JIT = "compiled on this machine"
    NONE = "none"


@cache
def _found() -> tuple[Build, Path | None, str]:
    """Return which is in use, the library, and why there is none."""
    choice = os.environ.get(CHOICE, "")
    ahead = _building.made_ahead()
    if ahead is not None and choice in ("", "ahead"):
        return Build.AHEAD, ahead, ""
    if choice == "none":
        return Build.NONE, None, f"{CHOICE} says so"
    try:
        return Build.JIT, _building.just_in_time(), ""
    except _building.CannotBuildError as error:
        return Build.NONE, None, str(error)


@cache
def load() -> Build:
    """Register the operators with Paddle, once in a process; return where they come from."""
    build, path, _ = _found()
    if path is not None:
        load_op_meta_info_and_register_op(str(path))
        plugin.opened("paddle", paddle.__version__, path)
    return build


def require_library(what: str) -> None:
    """Register the operators. Raises NotSupportedError if there is no library, saying why."""
    if load() is Build.NONE:
        raise NotSupportedError(f"{what} needs the operators' library: {_found()[2]}")


def _opened() -> Any:
    """Return the library, or None."""
    load()
    path = _found()[1]
    return None if path is None else plugin.opened("paddle", paddle.__version__, path)


def live_calls() -> int:
    """How many collectives of programs have been started and not waited for."""
    library = _opened()
    return 0 if library is None else int(library.ciranda_plugin_live_calls())


def set_interval(name: str, every: int) -> None:
    """Have a start of that name communicate in every so many runs from now on; 0: as its attribute says."""
    _opened().ciranda_paddle_set_interval(name.encode(), every)


def describe() -> str:
    """Return what was found, for `ciranda doctor`."""
    build, path, why = _found()
    load()
    if path is None:
        return f"Paddle {paddle.__version__} has no operators, so that only dygraph can communicate: {why}"
    return f"Paddle {paddle.__version__} has taken the operators, {build.value} ({path})"
