"""The errors of `ciranda.errors` for failures that a framework has raised in its own classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ciranda import errors

#: In the order of the engine's status codes, from 1.
OF_STATUS: tuple[type[errors.CirandaError], ...] = (
    errors.InvalidArgumentError,
    errors.MismatchError,
    errors.RanksLostError,
    errors.TimeoutError,
    errors.AbortedError,
    errors.InternalError,
)
#: By the word that the plugins put before a message: "RanksLost".
BY_WORD = {kind.__name__.removesuffix("Error"): kind for kind in OF_STATUS}


@contextmanager
def converted(as_ciranda_error: Callable[[Exception], Exception | None]) -> Iterator[None]:
    """Raise an exception of the context as what `as_ciranda_error` returns for it, unless that is None."""
    try:
        yield
    except Exception as error:
        stands_for = as_ciranda_error(error)
        if stands_for is None:
            raise
        raise stands_for from error
