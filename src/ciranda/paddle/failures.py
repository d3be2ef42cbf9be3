"""Errors of programs' collectives as classes of `ciranda.errors`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ciranda import errors
from ciranda._frameworks.error_classes import BY_WORD, converted

#: The message of a program's error names the kind of failure before the binding.
_OURS = re.compile(rf"\b({'|'.join(BY_WORD)}): ciranda\.paddle: (.*)", re.DOTALL)
#: What Paddle adds: the position in its own sources.
_WHERE = re.compile(r"\s*\(at [^()]*:\d+\)|\n\s*\[Hint")


def as_ciranda_error(error: BaseException) -> errors.CirandaError | None:
    """Return the error of `ciranda.errors` for an exception of Paddle's executor, or None."""
    found = None if isinstance(error, errors.CirandaError) else _OURS.search(str(error))
    return None if found is None else BY_WORD[found[1]](_WHERE.split(found[2])[0].strip())


@contextmanager
def ciranda_errors() -> Iterator[None]:
    """Convert the error of a program, if one of its collectives failed, to a class of `ciranda.errors`.

    `exe.run()` raises a RuntimeError or an OSError with the engine's message. Use this as a context manager, or as a
    decorator of a function, such as one that `ciranda.elastic.run` calls again after a rank is lost.
    """
    with converted(as_ciranda_error):
        yield
