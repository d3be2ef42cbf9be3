"""The classes of a shard that a step uses: those of the batch, and some others (PartialFC, An et al., 2020).

The softmax of a step is over the sampled classes only. A sample is a pure function of its seed, so that every rank can
compute that of every other, and a repeated step has the same.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ciranda.errors import InvalidArgumentError


def check_rate(rate: float) -> float:
    """Return the share of a shard's classes to sample. Raises InvalidArgumentError unless 0 < rate <= 1."""
    if not 0 < rate <= 1:
        raise InvalidArgumentError(f"sample_rate must be above 0 and at most 1; got {rate!r}")
    return rate


def sample(n_classes: int, positives: Any, rate: float, seed: int, step: int, shard: int) -> Any:
    """Return the positions of a shard's sampled classes, in ascending order.

    Args:
        n_classes: the number of the shard's classes.
        positives: the positions of the batch's classes there, in any order, possibly repeated. All are sampled.
        rate: the share of the classes to sample. If the batch has more, no other is added.
        seed: the same on all ranks.
        step: the number of samples drawn before.
        shard: the shard's number.
    """
    present = np.unique(np.asarray(positives, np.int64))
    n_others = min(n_sampled(n_classes, rate) - len(present), n_classes - len(present))
    if n_others <= 0:
        return present
    absent = np.setdiff1d(np.arange(n_classes), present, assume_unique=True)
    keys = _mixed(_state(seed, step, shard) + (absent.astype(np.uint64) + np.uint64(1)) * _GOLDEN)
    others = absent[np.argpartition(keys, n_others - 1)[:n_others]]
    return np.sort(np.concatenate([present, others]))


def n_sampled(n_classes: int, rate: float) -> int:
    """Return how many classes of a shard are sampled, unless the batch has more."""
    return math.ceil(rate * n_classes)


# A key for each class, by splitmix64 (Steele et al., 2014), which takes no two numbers to one: the least are sampled.
# cpp/bindings/paddle/sampling.hpp has the same.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mixed(values: Any) -> Any:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _state(*numbers: int) -> Any:
    state = np.zeros(1, np.uint64)
    for number in numbers:
        state = _mixed(state + _GOLDEN + np.array([number & (2**64 - 1)], np.uint64))
    return state
