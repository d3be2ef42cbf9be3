"""Learning rates that change during training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from ciranda import _basics
from ciranda.errors import InvalidArgumentError
from ciranda.keras import values


def _innermost(optimizer: Any) -> Any:
    """Return the optimizer that makes the steps, inside one that scales losses."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def _learning_rate(optimizer: Any) -> Any:
    """Return the variable that is the optimizer's learning rate."""
    rate = getattr(optimizer, "_learning_rate", None)
    rate = optimizer.learning_rate if rate is None else rate
    if not hasattr(rate, "assign"):
        raise InvalidArgumentError(
            f"the learning rate of this optimizer is a {type(rate).__name__}, which is a schedule itself; give the "
            "optimizer a number"
        )
    return rate


def _velocities(optimizer: Any) -> list[Any]:
    """Return the variables of the momentum: sums of steps, which include the learning rate."""
    if not _momentum(optimizer):
        return []
    slots = getattr(optimizer, "_slots", {})  # of legacy optimizers
    legacy = [of_variable["momentum"] for of_variable in slots.values() if "momentum" in of_variable]
    found = getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", None) or legacy
    return [velocity for velocity in found if velocity is not None]


def _momentum(optimizer: Any) -> float:
    momentum = getattr(optimizer, "momentum", 0.0)
    if hasattr(momentum, "assign"):  # of legacy optimizers
        return float(values.values_of([momentum])[0])
    return momentum if isinstance(momentum, (int, float)) else 0.0


class LearningRateScheduleCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Makes the learning rate `initial_lr * multiplier` from epoch `start_epoch` on, until before `end_epoch`.

    Args:
        initial_lr: the learning rate at the start.
        multiplier: a function of the epoch; or a number, raised to the power of the epochs since `start_epoch`.
        start_epoch: the first epoch in which the rate is changed.
        end_epoch: the first in which it is no longer changed; None for no end.
        staircase: whether the rate changes with each epoch, or, False, with each batch: the function is then called
            with fractions of epochs.
        momentum_correction: whether the accumulated momentum is scaled with the rate (Goyal et al., 2017, section 2.1):
            without it, a rate that jumps up takes full effect only after some steps.
        steps_per_epoch: the number of batches; by default Keras' number.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise InvalidArgumentError("initial_lr is missing: the learning rate at the start")
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0
        self.multiplier = multiplier if callable(multiplier) else self._power_of(multiplier)

    def _power_of(self, factor: float) -> Callable[[float], float]:
        return lambda epoch: factor ** (epoch - self.start_epoch)

    def on_train_begin(self, logs: Any = None) -> None:
        """Determine the number of batches in an epoch."""
        if not self.staircase and not self.steps_per_epoch:
            samples, size = self.params.get("samples"), self.params.get("batch_size")  # of Keras 2 without eager
            self.steps_per_epoch = self.params.get("steps") or (-(-samples // size) if samples and size else None)
            if not self.steps_per_epoch:
                raise InvalidArgumentError(
                    f"{type(self).__name__} needs steps_per_epoch: Keras does not say how many batches an epoch has"
                )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Record the epoch."""
        self.current_epoch = epoch

    def on_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Change the rate, if it is time."""
        if self.current_epoch < self.start_epoch or (
            self.end_epoch is not None and self.current_epoch >= self.end_epoch
        ):
            return
        if not self.staircase:
            self._adjust(self.current_epoch + batch / self.steps_per_epoch)  # type: ignore[operator]
        elif batch == 0:
            self._adjust(self.current_epoch)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Put the rate among the metrics, as `lr`."""
        if logs is not None:
            logs["lr"] = self._rate()

    def _rate(self) -> float:
        return float(values.values_of([_learning_rate(_innermost(self.model.optimizer))])[0])

    def _adjust(self, epoch: float) -> None:
        optimizer = _innermost(self.model.optimizer)
        old, new = self._rate(), self.initial_lr * self.multiplier(epoch)
        values.assign([_learning_rate(optimizer)], [new])
        if not self.momentum_correction or old in (0.0, new):
            return
        values.scale(_velocities(optimizer), float(new) / old)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from `initial_lr / size()` to `initial_lr`, batch by batch (Goyal et al., 2017).

    Args:
        initial_lr: the learning rate that is reached.
        warmup_epochs: the number of epochs.
        momentum_correction: as for LearningRateScheduleCallback.
        steps_per_epoch: the number of batches; by default Keras' number.
        verbose: 1 for a line on rank 0 when it is reached.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            initial_lr,
            self._warming_up,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.warmup_epochs = warmup_epochs
        self.verbose = verbose

    def _warming_up(self, epoch: float) -> float:
        size = _basics.size()
        done = epoch + 1.0 / self.steps_per_epoch  # type: ignore[operator]  # the rate after this batch
        return (done * (size - 1) / self.warmup_epochs + 1) / size

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Put the rate among the metrics, and report when it is reached."""
        super().on_epoch_end(epoch, logs)
        if epoch == self.warmup_epochs - 1 and self.verbose > 0 and _basics.rank() == 0:
            print(f"\nEpoch {epoch + 1}: the learning rate has reached {self._rate():g}.")  # noqa: T201
