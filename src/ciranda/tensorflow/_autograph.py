"""What AutoGraph is to leave as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf
from tensorflow.python.autograph.pyct import error_utils

from ciranda import errors

Function = TypeVar("Function", bound=Callable[..., Any])


def unconverted(function: Function) -> Function:
    """Keep `tf.function` from rewriting a function and what it calls, which takes longer than to trace them."""
    return tf.autograph.experimental.do_not_convert(function)  # type: ignore[no-any-return]


def _keep_classes_of_errors() -> None:
    """Have AutoGraph raise Ciranda's errors, which are made of a string, as what they are, not as a StagingError."""
    known = getattr(error_utils, "KNOWN_STRING_CONSTRUCTOR_ERRORS", None)
    if isinstance(known, tuple):
        error_utils.KNOWN_STRING_CONSTRUCTOR_ERRORS = (*known, *(getattr(errors, name) for name in errors.__all__))


_keep_classes_of_errors()
