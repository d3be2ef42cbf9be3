"""A sampler that knows which samples of an epoch have been used, whoever used them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sized
from typing import Any

import torch

from ciranda import _basics


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Divides the samples of an epoch that have not been used yet among the ranks of the circle.

    Ranks get equally many; where samples do not suffice for that, some are given twice. Call `record_batch()` after
    each batch, and put the sampler into the state: after a failure the epoch goes on with the samples that are left.

    Args:
        dataset: anything with a length.
        shuffle: whether each epoch has an order of its own.
        seed: for that order; the same on all ranks.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_indices: set[int] = set()
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, at its end: no sample has been used."""
        self.epoch = epoch
        self.processed_indices = set()
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Note that batch number `batch_idx` of this rank has been used; batches have `batch_size` samples."""
        self.record_indices(self.get_indices(batch_idx, batch_size))

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """Return the samples of a batch of this rank."""
        start = batch_idx * batch_size
        return self.indices[start : start + batch_size]

    def record_indices(self, indices: list[int]) -> None:
        """Note that samples have been used."""
        self.processed_indices.update(indices)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict()` returned, here or on another rank."""
        self.epoch = state_dict["epoch"]
        self.processed_indices = set(state_dict["processed_indices"])
        self.reset()

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, and which of its samples have been used."""
        return {"epoch": self.epoch, "processed_indices": set(self.processed_indices)}

    def reset(self) -> None:
        """Divide what is left anew among the ranks that there are now."""
        self.num_replicas = _basics.size()
        self.rank = _basics.rank()
        self.remaining_indices = [index for index in range(len(self.dataset)) if index not in self.processed_indices]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        self.indices = self._mine()

    def _mine(self) -> list[int]:
        order = list(self.remaining_indices)
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        while len(order) < self.total_size:
            order += order[: self.total_size - len(order)]
        return order[self.rank :: self.num_replicas]

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples
