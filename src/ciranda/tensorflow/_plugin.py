"""The native plugin: its ops, which run in any order."""

from __future__ import annotations

import ctypes

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps

from ciranda._frameworks.looks import Looks
from ciranda._frameworks.plugin import opened

library = opened("tensorflow", tf.__version__)
library.ciranda_tensorflow_xla_problem.restype = ctypes.c_char_p
looks = Looks(library)

#: Ops that may run in any order, each as soon as its inputs are ready.
ASYNCHRONOUS = (
    "CirandaAllreduce",
    "CirandaAllgather",
    "CirandaBroadcast",
    "CirandaAlltoall",
    "CirandaReducescatter",
    "CirandaPlace",
    "CirandaLook",
)


def _let_run_in_any_order() -> None:
    """Let `tf.function` add no control dependencies between these ops, though they are stateful.

    Otherwise each waits for the op that was traced before it, and ranks with different orders of tracing deadlock.
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
    """Return the number of pending calls."""
    return int(library.ciranda_plugin_live_calls())


def xla_problem() -> str:
    """Return the reason if XLA cannot compile collectives with this TensorFlow, else ""."""
    text: bytes = library.ciranda_tensorflow_xla_problem()
    return text.decode()


def describe() -> str:
    """Return the findings for `ciranda doctor`."""
    problem = xla_problem()
    compiled = f"but not in compiled functions: {problem}" if problem else "also in compiled functions (jit_compile)"
    return f"TensorFlow {tf.__version__}: all symbols found; collectives work, {compiled}"
