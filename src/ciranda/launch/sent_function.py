"""A function that is sent to ranks, with its arguments.

cloudpickle sends the bytecode of functions that ranks cannot import. Another Python may not refuse that, but crash, or
compute something else: so the Python that it is of is said before it.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

import cloudpickle

from ciranda.launch.errors import LaunchError

#: What has the same bytecode: "cpython-311".
PYTHON = sys.implementation.cache_tag


def packed(function: Callable[..., Any], args: Sequence[object], kwargs: Mapping[str, object] | None) -> bytes:
    """Return what is sent."""
    sent = io.BytesIO()
    sent.write(f"{PYTHON}\n".encode())
    cloudpickle.dump((function, tuple(args), dict(kwargs or {})), sent)
    return sent.getvalue()


def unpacked(sent: BinaryIO, load: Callable[[BinaryIO], Any] = cloudpickle.load) -> tuple[Callable[..., Any], Any, Any]:
    """Return the function, its arguments and its keyword arguments. `load` is as cloudpickle's.

    Raises:
        LaunchError: it was sent by another Python.
    """
    python = sent.readline().decode("ascii", "replace").strip()
    if python != PYTHON:
        raise LaunchError(
            f"the function was sent by {python}, which this rank's Python cannot run: {sys.executable} is {PYTHON}. "
            "Have the ranks use the same version of Python, on all hosts"
        )
    function, args, kwargs = load(sent)
    return function, args, kwargs
