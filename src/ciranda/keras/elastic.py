"""Training in Keras that starts again from its last commit when a collective has failed.

@elastic.run
def train(state):
    model.fit(..., epochs=10 - state.epoch, callbacks=[
        elastic.UpdateEpochStateCallback(state), elastic.CommitStateCallback(state)])

train(elastic.KerasState(model, epoch=0))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import keras
import numpy as np

from ciranda._frameworks import restarts, unshared
from ciranda._frameworks.states import HandledState, StateHandler
from ciranda.elastic import State
from ciranda.errors import InvalidArgumentError
from ciranda.keras import backends, values

__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]

Result = TypeVar("Result")


class VariablesHandler(StateHandler):
    """For objects with variables: models and optimizers."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        """Copy the values of the present variables."""
        self._variables = values.variables_of(self.value)
        self._saved = values.values_of(self._variables)

    def restore(self) -> None:
        """Restore the values. A variable that was created later gets zeros, as in a new optimizer."""
        values.assign(self._variables, self._saved)
        known = {id(variable) for variable in self._variables}
        later = [variable for variable in values.variables_of(self.value) if id(variable) not in known]
        values.assign(later, [np.zeros_like(value) for value in values.values_of(later)])

    def sync(self) -> None:
        """Receive rank 0's values."""
        variables = values.variables_of(self.value)
        values.broadcast(variables, 0, f"elastic.{type(self).__name__}")
        unshared.share(variables)
        self.save()


class ModelHandler(VariablesHandler):
    """For models, which must have been built."""

    def __init__(self, model: Any) -> None:
        if not getattr(model, "built", True):
            raise InvalidArgumentError("the model has no variables yet: call model.build(input_shape) before")
        super().__init__(model)


class OptimizerHandler(VariablesHandler):
    """For optimizers."""


class KerasState(HandledState):
    """The state that survives a failure of a training in Keras.

    Args:
        model: kept by its variables; it must have been built.
        optimizer: kept by its variables; by default the model's.
        kwargs: further values, which become attributes: objects that can be copied and pickled.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        chosen = optimizer or model.optimizer
        registry: list[tuple[type, type[StateHandler]]] = [(type(model), ModelHandler)]
        if chosen is not None:
            registry.append((type(chosen), OptimizerHandler))  # a legacy one is not an Optimizer
        # Keras 2 keeps it to itself whether an optimizer is built; its legacy ones have no build().
        is_built = getattr(chosen, "built", getattr(chosen, "_built", False))
        if hasattr(chosen, "build") and not is_built and model.built:
            chosen.build(model.trainable_variables)
        super().__init__(registry, {"model": model, "optimizer": chosen}, kwargs)


class CommitStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Commits the state after every `batches_per_commit` batches, and after each epoch."""

    def __init__(self, state: State, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        """Restart the count, on all ranks alike."""
        self.batches_remaining = self.batches_per_commit

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        """Commit, if it is time."""
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self._commit()
            self.batches_remaining = self.batches_per_commit

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Commit."""
        self._commit()

    def _commit(self) -> None:
        _ = self.model  # updates the variables, whose values Keras may keep elsewhere during training
        self.state.commit()


class UpdateBatchStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps `state.batch`: the number of the last batch, and 0 after each epoch. Put it before CommitStateCallback."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        """Record the batch."""
        self.state.batch = batch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Begin the next epoch with batch 0."""
        self.state.batch = 0


class UpdateEpochStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps `state.epoch`: the number of completed epochs, also those before a restart, when Keras counts from 0.

    Put it before CommitStateCallback, which would commit the epoch as one that is still to be trained.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.initial_epoch = state.epoch

    def on_train_begin(self, logs: Any = None) -> None:
        """Continue the count from here."""
        self.initial_epoch = self.state.epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Count one more completed epoch."""
        self.state.epoch = self.initial_epoch + epoch + 1


def run(func: Callable[..., Result]) -> Callable[..., Result]:
    """Return `func(state, ...)`; it is called again, on all ranks, after a collective has failed on any.

    Before each call all ranks receive rank 0's state. Between calls, all ranks restore their last `state.commit()` and
    form a new world, of the same processes. See `ciranda.elastic`.
    """
    return restarts.run(func, backends.as_ciranda_error)
