"""The native part: the ops that TensorFlow gets, and what has to be told of them."""

from __future__ import annotations

import ctypes

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps

from ciranda._frameworks.plugin import opened

library = opened("tensorflow", tf.__version__)
library.ciranda_tensorflow_xla_problem.restype = ctypes.c_char_p

#: Ops that may run in any order, each as soon as its inputs are there.
ASYNCHRONOUS = (
    "CirandaAllreduce",
    "CirandaAllgather",
    "CirandaBroadcast",
    "CirandaAlltoall",
    "CirandaReducescatter",
    "CirandaPlace",
)


def _let_run_in_any_order() -> None:
    """Have `tf.function` put no order between these ops, though they are stateful.

    Otherwise each waits for the one that was traced before it; ranks that traced in another order wait for each other.
    """
    known: frozenset[str] = auto_control_deps.ASYNC_STATEFUL_OPS
    if not isinstance(known, frozenset):
        raise ImportError(
            f"ciranda.tensorflow: framework TensorFlow version {tf.__version__} has no set "
            "auto_control_deps.ASYNC_STATEFUL_OPS"
        )
    auto_control_deps.ASYNC_STATEFUL_OPS = known | set(ASYNCHRONOUS)


_let_run_in_any_order()


def live_calls() -> int:
    """Return how many calls have not ended."""
    return int(library.ciranda_plugin_live_calls())


def xla_problem() -> str:
    """Return why no collective can be compiled by XLA with this TensorFlow; "" if they can."""
    text: bytes = library.ciranda_tensorflow_xla_problem()
    return text.decode()


def describe() -> str:
    """Return what was found, for `ciranda doctor`."""
    problem = xla_problem()
    compiled = f"but not in compiled functions: {problem}" if problem else "also in compiled functions (jit_compile)"
    return f"TensorFlow {tf.__version__}: all symbols found; collectives work, {compiled}"
