"""The number of local steps between two averages of the parameters (local SGD)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from ciranda.errors import InvalidArgumentError


class Progress(NamedTuple):
    """The progress of training: the mean loss of all ranks since the last average, and their mean learning rate."""

    loss: float
    learning_rate: float


def _positive(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgumentError(f"{name} must be a whole number from 1; got {value!r}")
    return value


@dataclass
class Interval:
    """A number of steps: constant, or adapted to the progress of training.

    An adaptive one is long while the loss is high, and short when noise would keep it from falling (Wang and Joshi:
    Adaptive Communication Strategies to Achieve the Best Error-Runtime Trade-off in Local-Update SGD, 2019): with the
    loss F and the learning rate r, and F0 and r0 at the first average,

        k = ceil(k0 * sqrt(F / F0 * r0 / r)), from 1 to max_k
    """

    #: The first.
    k0: int
    #: The longest; None for one that is constant.
    max_k: int | None = None
    first: Progress | None = None

    def __post_init__(self) -> None:
        self.k = _positive("k", self.k0)
        if self.max_k is not None and _positive("max_k", self.max_k) < self.k0:
            raise InvalidArgumentError(f"max_k={self.max_k} is less than k={self.k0}, which it starts with")

    @property
    def is_adaptive(self) -> bool:
        """Whether it depends on the progress."""
        return self.max_k is not None

    def adapt(self, now: Progress) -> None:
        """Choose the next interval; keep it if loss or rate is not above 0. REQUIRES: all ranks give the same."""
        if self.max_k is None or not all(math.isfinite(value) and value > 0 for value in now):
            return
        if self.first is None:
            self.first = now
        ratio = now.loss / self.first.loss * (self.first.learning_rate / now.learning_rate)
        self.k = max(1, min(self.max_k, math.ceil(self.k0 * math.sqrt(ratio))))
