"""The same variables and objects on every rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from ciranda import _basics
from ciranda._frameworks import objects
from ciranda.errors import NotSupportedError
from ciranda.process_sets import ProcessSet, global_process_set
from ciranda.tensorflow import ops

__all__ = [
    "BroadcastGlobalVariablesHook",
    "allgather_object",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
]


def broadcast_variables(
    variables: Iterable[Any], root_rank: int, process_set: ProcessSet = global_process_set, inplace: bool = False
) -> Any:
    """Broadcast the variables' values of rank `root_rank`, as one operation.

    Args:
        variables: `tf.Variable`s, or those of Keras, in the same order on all ranks.
        root_rank: the rank whose values are taken, a rank of the world.
        process_set: the ranks that take part; all, if not given.
        inplace: accepted for compatibility; without effect.

    Returns:
        In a graph of TensorFlow 1, the operation that does it; else None.
    """
    _basics.require_rank(root_rank)
    assigned = ops.broadcast_(list(variables), root_rank, "broadcast_variables", process_set)
    return tf.group(*assigned) if _is_in_session_graph() else None


def _is_in_session_graph() -> bool:
    """Whether calls become part of a graph that a session of TensorFlow 1 runs."""
    return not tf.compat.v1.executing_eagerly_outside_functions()


def broadcast_global_variables(root_rank: int) -> Any:
    """Return the operation that broadcasts rank `root_rank`'s global variables of a graph of TensorFlow 1.

    Raises:
        NotSupportedError: (a ValueError, and a RuntimeError) eager execution has no global variables.
    """
    if not _is_in_session_graph():
        raise EagerError(
            "broadcast_global_variables() does not go with eager execution: use broadcast_variables(model.variables, "
            "root_rank)"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class EagerError(NotSupportedError, RuntimeError):
    """A function that needs a graph of TensorFlow 1 was called in eager execution."""


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Broadcasts rank `root_rank`'s global variables when a session of TensorFlow 1 begins.

    Args:
        root_rank: the rank whose values are taken.
        device: the device; "" for that of the variables.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.bcast_op: Any = None

    def begin(self) -> None:
        """Add the operation to the graph."""
        if self.bcast_op is None or self.bcast_op.graph != tf.compat.v1.get_default_graph():
            with tf.device(self.device):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Run the operation."""
        session.run(self.bcast_op)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return rank `root_rank`'s `obj` on every rank: itself there, a copy elsewhere.

    `obj` can be any object that cloudpickle can pickle. `session` is accepted for compatibility: none is needed.
    """
    return objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Callable[[Any], Any]:
    """Return a function that does what `broadcast_object()` does, with these arguments."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Return the list of every rank's `obj`, in rank order. `session` is accepted for compatibility."""
    return objects.allgather_object(obj, name, process_set)
