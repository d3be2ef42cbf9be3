"""Which classes of a shard take part in a step: those of the batch, and some others (PartialFC, An et al., 2020).

The softmax of a step is over the sampled classes alone. A sample is a pure function of its seed, so that every rank can
compute that of every other, and a step that is made again has the same.
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
    """Return the places of a shard's sampled classes, in ascending order.

    Args:
        n_classes: how many the shard has.
        positives: the places of the batch's classes there, in any order, some perhaps several times. All are sampled.
        rate: the share of the classes to sample. Where the batch has more, no other is added.
        seed: the same on all ranks.
        step: how many samples were drawn before.
        shard: the shard's number.
    """
    present = np.unique(np.asarray(positives, np.int64))
    n_others = min(max(math.ceil(rate * n_classes) - len(present), 0), n_classes - len(present))
    if n_others == 0:
        return present
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, step, shard])))
    # The absent classes are numbered from 0; to each, those that are present and stand before it are added.
    numbers = generator.choice(n_classes - len(present), n_others, replace=False, shuffle=False)
    others = numbers + np.searchsorted(present - np.arange(len(present)), numbers, side="right")
    return np.sort(np.concatenate([present, others]))
