"""Global batches: each rank gets its share of every batch."""

from __future__ import annotations

import math
import warnings
from typing import Any

import keras
import numpy as np

from ciranda import _basics
from ciranda.errors import InvalidArgumentError
from ciranda.numpy.ops import allgather

_Dataset = getattr(keras.utils, "PyDataset", None) or keras.utils.Sequence


def warn_of_same_data(loss: float, n_batches: int) -> None:
    """Warn on rank 0 if all ranks have the same loss, of so many batches. A collective."""
    losses = allgather(np.array([loss]), name="BroadcastGlobalVariablesCallback.loss").tolist()
    is_same = len(losses) > 1 and len(set(losses)) == 1 and loss != 0 and math.isfinite(loss)
    if is_same and _basics.rank() == 0:
        warnings.warn(
            f"all ranks have had the same loss, {loss}, in the first {n_batches} batches: they seem to train with the "
            "same data in the same order, which is no faster than one of them. Give each rank its part: "
            "GlobalBatches(x, y), x[rank() :: size()], or dataset.shard(size(), rank())",
            RuntimeWarning,
            stacklevel=2,
        )


class GlobalBatches(_Dataset):  # type: ignore[misc,valid-type]
    """Arrays for `fit()`, cut into batches of which each rank gets its share.

    A batch that cannot be divided evenly, as the last one may be, has sample weights, so that the average of the ranks'
    gradients is that of the whole batch: training equals that of one process, with any loss that is a mean over the
    batch. A rank for which no sample remains gets one sample with weight 0.

    Pass `shuffle=False` to `fit()`: Keras would shuffle the batches, on each rank in another order, which raises
    InvalidArgumentError. Let this shuffle the samples.

    Between passes, a rank may read the first batch, as Keras does. A rank that reads more has begun a pass: with
    `shuffle`, its orders then differ from those of ranks that have not, and it trains with other parts.

    Args:
        x: an array, or a list or dictionary of arrays, with the same number of samples.
        y: the same, or None.
        batch_size: of the batch of all ranks.
        sample_weight: a weight for each sample, or None.
        shuffle: whether each epoch has a different random order.
        seed: for that order; the same on all ranks.
        kwargs: for `keras.utils.PyDataset`; without several workers, which have nothing to do here.
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        batch_size: int = 32,
        sample_weight: Any = None,
        shuffle: bool = False,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if batch_size < 1:
            raise InvalidArgumentError(f"batch_size must be at least 1, not {batch_size}")
        sizes = {len(array) for part in (x, y, sample_weight) for array in _arrays(part)}
        if len(sizes) != 1:
            raise InvalidArgumentError(f"the arrays must have the same number of samples; they have {sorted(sizes)}")
        self.x, self.y, self.sample_weight = x, y, sample_weight
        self.batch_size, self.shuffle, self.seed = batch_size, shuffle, seed
        self.n_samples = sizes.pop()
        self.epoch = 0
        self._last, self._n_taken = -1, 0
        #: Whether the pass was ended, so that batch 0 begins the next; and whether batch 0 has begun it before the end.
        self._is_over = self._is_ahead = False
        if getattr(self, "workers", 1) > 1:
            raise InvalidArgumentError("GlobalBatches has no work for several workers: give none")
        self._reorder()

    def _reorder(self) -> None:
        order = np.arange(self.n_samples)
        self._order = np.random.default_rng((self.seed, self.epoch)).permutation(order) if self.shuffle else order

    def on_epoch_end(self) -> None:
        """Check that the batches were read in order. The next order begins with batch 0: see `__getitem__()`."""
        self._check_order(self._n_taken >= len(self) > 1 and self._last == 0)
        self._n_taken = 0
        self._is_over = self._last >= 0 and not self._is_ahead
        self._is_ahead = False

    def _check_order(self, is_wrong: bool) -> None:
        """Raise if the batches are not read in order. Reading may restart from the first."""
        if is_wrong:
            raise InvalidArgumentError(
                "fit() takes the batches in an order of this rank's own, so that ranks would train with parts of "
                "different batches: pass shuffle=False to fit(), and shuffle=True to GlobalBatches if you like"
            )

    def __len__(self) -> int:
        return (self.n_samples + self.batch_size - 1) // self.batch_size

    def __getitem__(self, index: int) -> Any:
        """Return this rank's share of a batch."""
        if not 0 <= index < len(self):
            raise IndexError(f"there is no batch {index}: they are 0 to {len(self) - 1}")
        self._check_order(index not in (0, self._last, self._last + 1))
        begins = index == 0 and (self._last > 0 or self._is_over)
        self._is_ahead = begins and not self._is_over
        if begins:
            # The order changes here, not at the end of an epoch: with steps_per_epoch that has fewer batches, and Keras
            # may prefetch. It does not change when batch 0 is only read again, perhaps on this rank alone.
            self.epoch += 1
            self._is_over = False
            self._reorder()
        self._last, self._n_taken = index, self._n_taken + 1
        whole = self._order[index * self.batch_size : (index + 1) * self.batch_size]
        rank, size = _basics.rank(), _basics.size()
        mine = whole[len(whole) * rank // size : len(whole) * (rank + 1) // size]
        factor = len(mine) * size / len(whole)
        if not len(mine):
            mine = whole[:1]
        parts = (_taken(self.x, mine), _taken(self.y, mine))
        if self.sample_weight is None and self._is_even(size):
            return parts
        weights = np.ones(len(mine)) if self.sample_weight is None else np.asarray(self.sample_weight)[mine]
        return (*parts, (weights * factor).astype(np.float32))

    def _is_even(self, size: int) -> bool:
        """Whether every batch divides evenly among the ranks, so that none needs weights."""
        last = self.n_samples % self.batch_size
        return last % size == 0 and (self.n_samples < self.batch_size or self.batch_size % size == 0)


def _arrays(part: Any) -> list[Any]:
    if part is None:
        return []
    if isinstance(part, dict):
        return list(part.values())
    return list(part) if isinstance(part, (list, tuple)) else [part]


def _taken(part: Any, samples: Any) -> Any:
    if part is None:
        return None
    if isinstance(part, dict):
        return {name: array[samples] for name, array in part.items()}
    if isinstance(part, (list, tuple)):
        return type(part)(array[samples] for array in part)
    return part[samples]
