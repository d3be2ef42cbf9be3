"""`horovod.tensorflow.util`: helpers that scripts import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def _executing_eagerly() -> bool:
    return bool(tf.executing_eagerly())


def _make_subgraph(f: Callable[..., Any]) -> Any:
    return tf.function(f)


def _cache(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return `f`, called once for the same arguments in the same mode."""
    results: dict[Any, Any] = {}

    def cached(*args: Any) -> Any:
        key = (args, _executing_eagerly())
        if key not in results:
            results[key] = f(*args)
        return results[key]

    return cached


def vars_to_refs(vars: Any) -> Any:
    """Return a variable's reference, which can be hashed; of a list, a tuple of those."""
    return tuple(vars_to_refs(each) for each in vars) if isinstance(vars, list) else vars.ref()


def refs_to_vars(refs: Any) -> Any:
    """Return the variable of a reference; of a tuple, a list of those."""
    return [refs_to_vars(each) for each in refs] if isinstance(refs, tuple) else refs.deref()
