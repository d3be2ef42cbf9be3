"""Callbacks for `fit()`: equal variables at the start, averaged metrics, learning rates, checkpoints of one rank."""

from __future__ import annotations

import numbers
from typing import Any

import keras
import numpy as np

from ciranda import _basics
from ciranda._frameworks.gradients import identity_of
from ciranda._frameworks.naming import joined
from ciranda._frameworks.objects import allgather_object
from ciranda._ops import LogicalAnd
from ciranda.errors import InvalidArgumentError, MismatchError
from ciranda.keras import values
from ciranda.keras.data import warn_of_same_data
from ciranda.keras.learning_rate import LearningRateScheduleCallback, LearningRateWarmupCallback
from ciranda.keras.wrapping import combiner_of, combines_every_step
from ciranda.numpy.ops import allgather, allreduce

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


#: The number of compared batches: with zero weights, the losses of the first may be the same for any data.
_N_BATCHES_OF_SAME_DATA = 3
#: The steps of an epoch whose data have no length.
_UNKNOWN = -1


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Broadcasts the model's and the optimizer's variables of rank `root_rank` when training starts.

    If the models of all ranks have been built by then, before the first step; otherwise after the first batch. It also
    warns, after some batches, if all ranks have had the same loss: then they train with the same data.

    Args:
        root_rank: the rank whose variables are taken.
        device: accepted for compatibility; without effect.
        local_variables: a variable or several that each rank keeps.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.broadcast_done = False
        self._n_batches = 0
        self._local: dict[int, Any] = {}
        several = local_variables if isinstance(local_variables, (list, tuple, set)) else [local_variables]
        for variable in several if local_variables is not None else ():
            self.register_local_var(variable)

    def register_local_var(self, var: Any) -> None:
        """Let each rank keep its value of `var`, a variable."""
        if not hasattr(var, "assign"):
            raise InvalidArgumentError(f"local_variables must be variables; got {type(var).__name__}")
        self._local[identity_of(var)] = var

    def on_train_begin(self, logs: Any = None) -> None:
        """Broadcast, if there are variables on all ranks."""
        self.broadcast_done = False
        self._n_batches = 0
        model = self.model
        if not allreduce(np.array(bool(model.built)), op=LogicalAnd, name="BroadcastGlobalVariablesCallback.built"):
            return
        if not model.optimizer.built if hasattr(model.optimizer, "built") else False:
            model.optimizer.build(model.trainable_variables)
        self._broadcast()

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        """Broadcast, if that has not been done; compare the losses after some batches."""
        if not self.broadcast_done:
            self._broadcast()
        self._n_batches += 1
        if self._n_batches == _N_BATCHES_OF_SAME_DATA and combines_every_step(self.model.optimizer):
            warn_of_same_data(float((logs or {}).get("loss", np.nan)), self._n_batches)

    def _broadcast(self) -> None:
        model = self.model
        found = [*values.variables_of(model), *values.variables_of(model.optimizer)]
        shared = [variable for variable in found if identity_of(variable) not in self._local]
        values.broadcast(shared, self.root_rank, "BroadcastGlobalVariablesCallback")
        self.broadcast_done = True


class MetricAverageCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Averages the metrics of an epoch over all ranks, for the callbacks after it in the list.

    Put it before ReduceLROnPlateau, EarlyStopping, TensorBoard and checkpoints. All ranks must have it, and the same
    metrics, also those of validation: otherwise they get a MismatchError. If a DistributedOptimizer combines the
    gradients of each step, they must also make the same number of steps in an epoch. If their data have a length, ranks
    that differ get a MismatchError on all ranks when training begins; otherwise the rank that first reaches the end of
    an epoch or of training gets it, and the others' steps fail.

    Args:
        device: accepted for compatibility; without effect.
        weight: the weight of this rank's metrics, as the number of its samples; by default equal weights.
    """

    def __init__(self, device: str = "", weight: float | None = None) -> None:
        super().__init__()
        self.device = device
        self.weight = weight

    def on_train_begin(self, logs: Any = None) -> None:
        """Check that all ranks have this, and none will average metrics while others still wait for its gradients."""
        self._meet_without_steps(
            "has come to the start of training with MetricAverageCallback",
            "give fit() the same callbacks, in the same order, on all ranks",
        )
        steps = self.params.get("steps") if combines_every_step(self.model.optimizer) else None
        of_ranks = allgather(np.array([_UNKNOWN if steps is None else steps]), name="MetricAverageCallback.steps")
        if _UNKNOWN not in of_ranks and len(set(of_ranks.tolist())) > 1:
            told = ", ".join(f"{n_steps} on rank {rank}" for rank, n_steps in enumerate(of_ranks.tolist()))
            raise MismatchError(
                f"the ranks make different numbers of steps in an epoch: {told}. Those that make fewer would wait at "
                "its end while the others wait for their gradients: use GlobalBatches, or give fit() the same "
                "steps_per_epoch"
            )

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Replace this rank's metrics by the averages."""
        own = {name: value for name, value in sorted((logs or {}).items()) if _is_number(value)}
        # Raises errors of steps that the backend runs asynchronously.
        numbers_here = np.array([float(value) for value in own.values()])
        self._end_together(f"epoch {epoch}")
        _require_same_metrics(list(own), epoch)
        if not own or logs is None:
            return
        averages = allreduce(numbers_here, name=f"MetricAverageCallback.{joined(list(own))}", weight=self.weight)
        logs.update(zip(own, averages.tolist(), strict=True))

    def on_train_end(self, logs: Any = None) -> None:
        """Check that all ranks have made the same number of epochs."""
        self._end_together("training")

    def _end_together(self, what: str) -> None:
        """Raise MismatchError if other ranks still make steps, as data without a length allow."""
        self._meet_without_steps(
            f"has come to the end of {what}",
            "use GlobalBatches, or give fit() the same steps_per_epoch, not more than any rank has data for, and the "
            "same number of epochs; and put MetricAverageCallback before callbacks that end training, as EarlyStopping",
        )

    def _meet_without_steps(self, doing: str, remedy: str) -> None:
        """Raise MismatchError if other ranks make steps meanwhile, which would wait for this rank's gradients."""
        combiner = combiner_of(self.model.optimizer)
        if combiner is None:
            return
        try:
            combiner.meet_without(doing)
        except MismatchError as error:
            raise MismatchError(
                f"rank {_basics.rank()} {doing} while other ranks still make steps, for which they need its gradients: "
                f"{remedy} ({error})"
            ) from error


def _require_same_metrics(own: list[str], epoch: int) -> None:
    """Raise MismatchError on all ranks unless all have these metrics. A collective."""
    of_ranks = dict(allgather_object((_basics.rank(), own), "MetricAverageCallback.metrics"))
    differing = sorted(set().union(*of_ranks.values()) - set(own).intersection(*of_ranks.values()))
    if differing:
        having = {name: [rank for rank, names in of_ranks.items() if name in names] for name in differing}
        told = ", ".join(f"'{name}' on rank {' and '.join(map(str, ranks))}" for name, ranks in having.items())
        raise MismatchError(
            f"MetricAverageCallback: at the end of epoch {epoch} some ranks have metrics that others lack: {told}. "
            "Give fit() validation data, and the same validation_freq, on all ranks or on none, and compile() the "
            "same metrics"
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, (numbers.Number, np.generic)) or getattr(value, "shape", None) == ()


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Keeps the best model so far, in a file that rank 0 writes.

    Put MetricAverageCallback before it, so that "best" is decided by the metrics of all ranks.

    Args:
        monitor: the name of the metric.
        verbose: 1 to print each save.
        save_weights_only: whether only the weights are saved.
        mode: "auto", "min" or "max".
        save_freq: "epoch", or a number of batches.
        filepath: the file. It may also be set afterwards, as the attribute `filepath`.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
        filepath: Any = None,
    ) -> None:
        ending = ".weights.h5" if save_weights_only else ".keras"
        super().__init__(
            "best" + ending if filepath is None else filepath,
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
        if filepath is None:
            self.filepath = None

    def _save_model(self, *args: Any, **kwargs: Any) -> None:
        if self.filepath is None:
            raise InvalidArgumentError("BestModelCheckpoint has no filepath: give one, or set its attribute")
        if _basics.rank() == 0:
            super()._save_model(*args, **kwargs)
