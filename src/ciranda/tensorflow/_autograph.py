"""Exemptions from AutoGraph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf
from tensorflow.python.autograph.pyct import error_utils

from ciranda import errors

Function = TypeVar("Function", bound=Callable[..., Any])


def unconverted(function: Function) -> Function:
    """Exempt a function and its callees from AutoGraph, whose conversion takes longer than tracing them."""
    return tf.autograph.experimental.do_not_convert(function)  # type: ignore[no-any-return]


def _keep_classes_of_errors() -> None:
    """Make AutoGraph raise Ciranda's errors, which take a string, in their own classes, not as a StagingError."""
    known = getattr(error_utils, "KNOWN_STRING_CONSTRUCTOR_ERRORS", None)
    if isinstance(known, tuple):
        error_utils.KNOWN_STRING_CONSTRUCTOR_ERRORS = (*known, *(getattr(errors, name) for name in errors.__all__))


_keep_classes_of_errors()
