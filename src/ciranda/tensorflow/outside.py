"""Gradients of steps that a process of an elastic job makes before its first world, and afterwards in the same graph.

Such a step uses the process's own gradients: see `ciranda._frameworks.unshared`. A graph that was traced then asks each
time that it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import tensorflow as tf

from ciranda import _basics
from ciranda.tensorflow._execution import is_building_graph


@cache
def _has_joined() -> Any:
    """Return a variable that says whether this process has joined a world."""
    with tf.init_scope():
        has_joined = tf.Variable(False, trainable=False, name="ciranda_has_joined")
    _basics.at_first_world.append(lambda: has_joined.assign(True))
    return has_joined


def _parts(gradients: Sequence[Any]) -> list[Any]:
    """Return the tensors of gradients: of IndexedSlices two, whose shapes may differ between the ways."""
    return [
        part
        for each in gradients
        for part in ((each.values, each.indices) if isinstance(each, tf.IndexedSlices) else (each,))
    ]


def _like(gradients: Sequence[Any], parts: Sequence[Any]) -> list[Any]:
    """Return what has these parts, and otherwise is like these gradients."""
    left = iter(parts)
    return [
        tf.IndexedSlices(next(left), next(left), each.dense_shape) if isinstance(each, tf.IndexedSlices) else next(left)
        for each in gradients
    ]


def combined_once_joined(own: Sequence[Any], combine: Callable[[], Sequence[Any]]) -> list[Any]:
    """Return the gradients that `combine` gives in a world, and before this process's own. None stays None.

    Args:
        own: this process's, in the form of the combined ones.
        combine: a collective.
    """
    if not is_building_graph():
        return list(own)
    places = [place for place, gradient in enumerate(own) if gradient is not None]
    present = [own[place] for place in places]

    def combined() -> list[Any]:
        everyones = combine()
        return _parts([everyones[place] for place in places])

    chosen = tf.cond(_has_joined(), combined, lambda: [tf.identity(part) for part in _parts(present)])
    parts = chosen if isinstance(chosen, (list, tuple)) else [chosen]
    results = list(own)
    for place, gradient in zip(places, _like(present, parts), strict=True):
        results[place] = gradient
    return results
