"""Comparison of tensors that should be the same on all ranks, such as the parameters of a model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ciranda import _basics
from ciranda.errors import MismatchError
from ciranda.numpy import ops
from ciranda.process_sets import ProcessSet


@dataclass(frozen=True)
class Named:
    """One of the compared tensors."""

    name: str
    kind: str  # its dtype and shape
    for_engine: Any

    def digest(self) -> tuple[int, int]:
        """Return a checksum of the dtype and shape, and one of the contents."""
        text = hashlib.blake2b(f"{self.name}\n{self.kind}".encode(), digest_size=8).digest()
        return int.from_bytes(text, "little"), _basics.engine().checksum(self.for_engine)


def compare(tensors: Iterable[Named], process_set: ProcessSet) -> None:
    """Raise MismatchError, on all ranks, for the first tensor that is not the same on all."""
    mine = list(tensors)
    digests = np.array([one.digest() for one in mine], np.uint64).reshape(-1, 2)
    told = ops.allgather(np.array([[_basics.rank(), len(mine)]]), process_set=process_set)
    ranks, counts = told.T  # of those that have not joined
    all_digests = np.split(ops.allgather(digests, process_set=process_set), np.cumsum(counts)[:-1])
    for index in range(int(counts.max())):
        rows = [tuple(of_rank[index : index + 1].ravel().tolist()) for of_rank in all_digests]
        if len(set(rows)) > 1:
            raise MismatchError(_describe(mine[index] if index < len(mine) else None, index, rows, ranks.tolist()))


def _describe(mine: Named | None, index: int, rows: Sequence[tuple[int, ...]], ranks: Sequence[int]) -> str:
    right = max(rows, key=rows.count)  # the value of most ranks; without a majority, that of the first
    alike = [rank for rank, row in zip(ranks, rows, strict=True) if row == right]
    odd = [rank for rank, row in zip(ranks, rows, strict=True) if row != right]
    what = f"'{mine.name}' ({mine.kind} here)" if mine else f"number {index} (there is none here)"
    same_kind = len({row[:1] for row in rows}) == 1
    differs = "has other bits" if same_kind else "has another name, dtype or shape, or does not exist,"
    return (
        f"The ranks have diverged: tensor {what} {differs} on {_text(odd)} than on {_text(alike)}. "
        f"It is the first of those compared that differs."
    )


def _text(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
