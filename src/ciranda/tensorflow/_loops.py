"""The number of iterations of a loop that TensorFlow runs concurrently, each of which needs its own names."""

from __future__ import annotations

import sys

import tensorflow as tf
from tensorflow.python.ops import while_v2

_ARGUMENT = "parallel_iterations"
#: The least for a known loop, so that most have the same names; and the number for a function traced before its loop.
_FEWEST, _UNKNOWN = 32, 1024


def iterations_at_once() -> int:
    """Return the number, or more, for the loop whose body is being traced.

    TensorFlow stores it after the body has been traced. Before, it is an argument of a calling function.
    """
    graph = tf.compat.v1.get_default_graph()
    if not graph.building_function:
        context = graph._get_control_flow_context()  # of TensorFlow 1
        loop = context.GetWhileContext() if context is not None else None
        return _UNKNOWN if loop is None else max(_FEWEST, int(loop.parallel_iterations))
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals is vars(while_v2) and _ARGUMENT in frame.f_locals:
            return max(_FEWEST, int(frame.f_locals[_ARGUMENT]))
        frame = frame.f_back  # type: ignore[assignment]
    return _UNKNOWN
