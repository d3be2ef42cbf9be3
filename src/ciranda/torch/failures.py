"""Failures of collectives that torch has raised in a class of its own."""

from __future__ import annotations

import re

from ciranda import errors
from ciranda._frameworks.error_classes import OF_STATUS

_BY_NAME = {kind.__name__: kind for kind in OF_STATUS}

# torch turns the error of a future's callback, as of a communication hook, into the text of a RuntimeError. Callbacks
# of callbacks add to it, and a stack follows.
_MESSAGE = re.compile(
    rf"error when running the callback: (?:ciranda\.errors\.)?({'|'.join(_BY_NAME)}): (.*?)(?:\n\nAt:.*)?$", re.DOTALL
)


def as_ciranda_error(error: BaseException) -> errors.CirandaError | None:
    """Return the error of `ciranda.errors` for `error`, with its message; None if no collective of Ciranda failed."""
    if isinstance(error, errors.CirandaError):
        return error
    found = _MESSAGE.search(str(error)) if isinstance(error, RuntimeError) else None
    return _BY_NAME[found[1]](found[2]) if found else None
