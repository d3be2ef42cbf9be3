"""Errors of programs' collectives as classes of `ciranda.errors`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ciranda import errors

#: The message of a program's error names the kind of failure before the binding.
_KINDS: dict[str, type[errors.CirandaError]] = {
    "InvalidArgument": errors.InvalidArgumentError,
    "Mismatch": errors.MismatchError,
    "RanksLost": errors.RanksLostError,
    "Timeout": errors.TimeoutError,
    "Aborted": errors.AbortedError,
    "Internal": errors.InternalError,
}
_OURS = re.compile(rf"\b({'|'.join(_KINDS)}): ciranda\.paddle: (.*)", re.DOTALL)
#: What Paddle adds: the position in its own sources.
_WHERE = re.compile(r"\s*\(at [^()]*:\d+\)|\n\s*\[Hint")


def as_ciranda_error(error: BaseException) -> errors.CirandaError | None:
    """Return the error of `ciranda.errors` for an exception of Paddle's executor, or None."""
    found = None if isinstance(error, errors.CirandaError) else _OURS.search(str(error))
    return None if found is None else _KINDS[found[1]](_WHERE.split(found[2])[0].strip())


@contextmanager
def ciranda_errors() -> Iterator[None]:
    """Convert the error of a program, if one of its collectives failed, to a class of `ciranda.errors`.

    `exe.run()` raises a RuntimeError or an OSError with the engine's message. Use this as a context manager, or as a
    decorator of a function, such as one that `ciranda.elastic.run` calls again after a rank is lost.
    """
    try:
        yield
    except Exception as error:
        stands_for = as_ciranda_error(error)
        if stands_for is None:
            raise
        raise stands_for from error
