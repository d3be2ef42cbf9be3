"""The error of `ciranda.errors` for an op's failure."""

from __future__ import annotations

import re

import tensorflow as tf

from ciranda import errors
from ciranda._frameworks.error_classes import BY_WORD

# The plugin's message, without the op that TensorFlow adds.
_MESSAGE = re.compile(rf"\b({'|'.join(BY_WORD)}): (.*?)(?:\n?\s+\[(?:Op:|\[).*)?$", re.DOTALL)


def as_ciranda_error(error: BaseException) -> errors.CirandaError | None:
    """Return the error of `ciranda.errors` for `error`, with its message; None if no op of Ciranda has failed."""
    if isinstance(error, errors.CirandaError):
        return error
    if not isinstance(error, tf.errors.OpError):
        return None
    found = _MESSAGE.search(error.message)
    return BY_WORD[found[1]](found[2]) if found else None
