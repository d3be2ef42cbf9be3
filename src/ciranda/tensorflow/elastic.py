"""Training in TensorFlow that starts again from its last commit when a collective has failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

from ciranda import _basics
from ciranda._frameworks import restarts, unshared
from ciranda._frameworks.objects import broadcast_object
from ciranda.elastic import ObjectState
from ciranda.keras.elastic import KerasState
from ciranda.tensorflow.failures import as_ciranda_error
from ciranda.tensorflow.functions import broadcast_variables

__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]

Result = TypeVar("Result")


def run(func: Callable[..., Result]) -> Callable[..., Result]:
    """Return `func(state, ...)`; it is called again, on all ranks, after a collective has failed on any.

    Before each call all ranks receive rank 0's state. Between calls, all ranks restore their last `state.commit()` and
    form a new world, of the same processes. See `ciranda.elastic`.
    """
    return restarts.run(func, as_ciranda_error)


class TensorFlowState(ObjectState):
    """The state that survives a failure: variables, and objects.

    Args:
        variables: `tf.Variable`s; by default the global variables of a graph of TensorFlow 1.
        session: of TensorFlow 1, which has the variables' values; by default the default session.
        kwargs: further values, which become attributes: objects that can be copied and pickled.
    """

    def __init__(self, variables: Any = None, session: Any = None, **kwargs: Any) -> None:
        self.variables = list(tf.compat.v1.global_variables() if variables is None else variables)
        self.session = session
        self._in_graph: Any = None
        if not tf.compat.v1.executing_eagerly_outside_functions():
            self.session = session or tf.compat.v1.get_default_session()
            self._in_graph = broadcast_variables(self.variables, root_rank=0)
        self._save_variables()
        super().__init__(lambda value: broadcast_object(value, root_rank=0), _basics.rank, **kwargs)

    def _save_variables(self) -> None:
        if self._in_graph is None:
            self._values = [variable.numpy() for variable in self.variables]
        else:
            self._values = self.session.run(self.variables)

    def save(self) -> None:
        """Save the variables and the objects."""
        self._save_variables()
        super().save()

    def restore(self) -> None:
        """Restore the last save."""
        for variable, value in zip(self.variables, self._values, strict=True):
            if self._in_graph is None:
                variable.assign(value)
            else:
                variable.load(value, self.session)
        super().restore()

    def saved(self) -> Any:
        """Return the saved values and objects."""
        return self._values, super().saved()

    def set_saved(self, saved: Any) -> None:
        """Keep them again."""
        self._values, of_objects = saved
        super().set_saved(of_objects)

    def sync(self) -> None:
        """Broadcast rank 0's variables and objects. A collective."""
        if self._in_graph is None:
            broadcast_variables(self.variables, root_rank=0)
        else:
            self.session.run(self._in_graph)
        unshared.share(self.variables)
        self._save_variables()
        super().sync()


class TensorFlowKerasState(KerasState):
    """`ciranda.keras.elastic.KerasState`; `backend` is accepted for compatibility."""

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer, **kwargs)
