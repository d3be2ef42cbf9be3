"""A layer's classes, divided over ranks, and the samples of all ranks that each of them computes with.

Rank r of n has the classes of shard r: n consecutive shards that differ in size by at most one, the larger ones first.
With fewer classes than ranks some are empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ciranda.errors import InvalidArgumentError, MismatchError


@dataclass(frozen=True)
class Shards:
    """How classes 0 to n_classes - 1 are divided."""

    n_classes: int
    n_shards: int

    def __post_init__(self) -> None:
        if isinstance(self.n_classes, bool) or not isinstance(self.n_classes, int) or self.n_classes < 1:
            raise InvalidArgumentError(f"the number of classes must be a whole number from 1; got {self.n_classes!r}")

    def bounds(self, shard: int) -> tuple[int, int]:
        """Return the first class of a shard, and the one behind its last."""
        size, rest = divmod(self.n_classes, self.n_shards)
        return shard * size + min(shard, rest), (shard + 1) * size + min(shard + 1, rest)

    def targets(self, labels: Any, shard: int) -> tuple[Any, Any]:
        """Return which samples have their class in the shard, and its places there: labels by index, never one-hot."""
        first, end = self.bounds(shard)
        samples = np.flatnonzero((labels >= first) & (labels < end))
        return samples, labels[samples] - first


@dataclass(frozen=True)
class Told:
    """A rank's report on its batch, as a row of whole numbers."""

    n_samples: int
    n_labels: int
    #: Whether it wants the gradient of its features.
    needs_gradient: bool
    #: What is wrong with its arguments: a place in `PROBLEMS`, from 1; 0 if nothing is.
    problem: int = 0

    def row(self) -> list[int]:
        """Return it as numbers."""
        return [self.n_samples, self.n_labels, int(self.needs_gradient), self.problem]


#: What may be wrong with what one rank gives; all ranks are told, as all wait for it.
PROBLEMS = (
    "features that are not a table of floating-point numbers with a column for each of the layer's {n_features} inputs",
    "labels that are not a list of whole numbers",
)


class Batches:
    """The batches of all ranks, which may differ in size, as one: in the order of the ranks."""

    def __init__(self, rows: Sequence[Sequence[int]], mine: int, n_ranks: int, n_features: int) -> None:
        """`rows` is what each rank has told; this is rank `mine`.

        Raises:
            MismatchError: ranks have joined.
            InvalidArgumentError: a rank has given invalid arguments. On all ranks.
        """
        if len(rows) != n_ranks:
            raise MismatchError(
                f"only {len(rows)} of {n_ranks} ranks take part in a sharded layer: the others have joined, and the "
                "classes that they have are missing; let all ranks make equally many steps, some with empty batches"
            )
        told = [Told(row[0], row[1], bool(row[2]), row[3]) for row in rows]
        for rank, each in enumerate(told):
            if each.problem:
                raise InvalidArgumentError(
                    f"rank {rank} gives a sharded layer {PROBLEMS[each.problem - 1].format(n_features=n_features)}"
                )
            if each.n_labels not in (-1, each.n_samples):
                raise InvalidArgumentError(f"rank {rank} gives {each.n_labels} labels for {each.n_samples} samples")
        self.sizes = [each.n_samples for each in told]
        self.needs_gradient = any(each.needs_gradient for each in told)
        self.total = sum(self.sizes)
        self.largest = max(self.sizes)
        self._starts = [0, *np.cumsum(self.sizes).tolist()]
        self.mine = slice(self._starts[mine], self._starts[mine + 1])

    def part(self, rank: int) -> slice:
        """Return which samples are a rank's."""
        return slice(self._starts[rank], self._starts[rank + 1])

    @property
    def are_even(self) -> bool:
        """Whether all ranks have as many samples."""
        return self.total == self.largest * len(self.sizes)

    def check(self, labels: Any, shards: Shards) -> None:
        """Raise InvalidArgumentError, on all ranks, for a label of any rank that is no class."""
        wrong = np.flatnonzero((labels < 0) | (labels >= shards.n_classes))
        if wrong.size:
            rank = int(np.searchsorted(self._starts, wrong[0], side="right")) - 1
            raise InvalidArgumentError(
                f"rank {rank} gives label {int(labels[wrong[0]])} for its sample {int(wrong[0]) - self._starts[rank]}, "
                f"but the layer's classes are 0 to {shards.n_classes - 1}"
            )
