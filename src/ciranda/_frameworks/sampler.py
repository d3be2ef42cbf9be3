"""A sampler that tracks the progress of all ranks together within an epoch."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sized
from contextlib import suppress
from itertools import cycle, islice
from typing import Any

from ciranda import _basics
from ciranda.errors import NotInitializedError


class ElasticIndices:
    """The implementation of a framework's `ElasticSampler` (see its docstring), except its base class."""

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0, pad: bool = True) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.pad = pad
        self.epoch = 0
        self.processed_num = 0
        self._recorded: set[int] = set()
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, at the end of the one before: no sample has been used."""
        self.epoch = epoch
        self.processed_num = 0
        self._recorded = set()
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Note that every rank has used a batch of `batch_size` samples; the index of the batch is ignored."""
        n_samples = len(self.dataset) - len(self._recorded)
        self.processed_num = min(self.processed_num + batch_size * self.num_replicas, n_samples)

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """Return the samples of a batch of this rank."""
        start = batch_idx * batch_size
        return self.indices[start : start + batch_size]

    def record_indices(self, indices: Iterable[int]) -> None:
        """Note that this rank has used these samples, without batches; not together with `record_batch()`."""
        self._recorded.update(indices)

    @property
    def processed_indices(self) -> set[int]:
        """The used samples that this rank has recorded."""
        return {*self._order()[: self.processed_num], *self._recorded}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a `state_dict()` of this or another rank, or of any version of Horovod."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict.get("processed_num", 0)
        self._recorded = set(state_dict.get("processed_indices", ()))
        with suppress(NotInitializedError):  # a state that goes back outside a world is reset in the next one
            self.reset()

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, the number of its used samples, and those that were recorded one by one."""
        state: dict[str, Any] = {"epoch": self.epoch, "processed_num": self.processed_num}
        return {**state, "processed_indices": set(self._recorded)} if self._recorded else state

    def reset(self) -> None:
        """Divide the remaining samples among the present ranks."""
        self.num_replicas = _basics.size()
        self.rank = _basics.rank()
        order = self._order()
        self.remaining_indices = order[self.processed_num :]
        n_padding = -len(self.remaining_indices) % self.num_replicas if self.pad else 0
        given = [*self.remaining_indices, *islice(cycle(order), n_padding)]
        self.total_size = len(given)
        self.indices = given[self.rank :: self.num_replicas]
        self.num_samples = len(self.indices)

    def _order(self) -> list[int]:
        """The samples of the epoch, except those that were recorded one by one."""
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        return [index for index in order if index not in self._recorded] if self._recorded else order

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples
