"""How many iterations of a loop TensorFlow may have under way at once, of which each needs names of its own."""

from __future__ import annotations

import sys

import tensorflow as tf
from tensorflow.python.ops import while_v2

_ARGUMENT = "parallel_iterations"
#: In a loop that is known, so that most have the same names; and in one that calls a function which was traced before.
_FEWEST, _UNKNOWN = 32, 1024


def iterations_at_once() -> int:
    """Return it for the loop whose body is traced now, or more.

    TensorFlow writes it down when the body has been traced. Before, it is an argument of who traces it.
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
