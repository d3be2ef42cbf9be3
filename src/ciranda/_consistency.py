"""Comparison of tensors that should be the same on all ranks, such as the parameters of a model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ciranda import _basics
from ciranda.errors import MismatchError
from ciranda.numpy import ops
from ciranda.process_sets import ProcessSet

#: How many of the tensors that differ a message names.
_N_NAMES = 5

#: A row for each tensor: checksums of its name, of its dtype and shape, and of its contents.
Digests = np.ndarray[Any, np.dtype[np.uint64]]
Row = tuple[int, ...]


@dataclass(frozen=True)
class Named:
    """One of the compared tensors."""

    name: str
    kind: str  # its dtype and shape
    for_engine: Any


class ContentsError(MismatchError):
    """All ranks have the same tensors, with other contents: other calls for these tensors go on."""


def digests_of(tensors: Sequence[Named], has_names: bool = True) -> Digests:
    """Return the digests of tensors; `has_names`: whether they have the same names on all ranks."""
    rows = [
        (_digest(one.name) if has_names else 0, _digest(one.kind), _basics.engine().checksum(one.for_engine))
        for one in tensors
    ]
    return np.array(rows, np.uint64).reshape(-1, 3)


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def compare(tensors: Iterable[Named], process_set: ProcessSet) -> None:
    """Raise MismatchError, on all ranks, unless all have the same tensors, and name those that differ."""
    mine = list(tensors)
    try:
        compare_digests(mine, digests_of(mine), process_set)
    except ContentsError as error:
        raise MismatchError(str(error)) from None


def compare_digests(
    named: Sequence[Named],
    mine: Digests,
    process_set: ProcessSet,
    call: str | None = None,
    may_differ: Callable[[Sequence[Row]], bool] = lambda rows: False,
) -> None:
    """Raise MismatchError, on all ranks, unless all have the same digests.

    Args:
        named: what they are of.
        mine: this rank's.
        process_set: the ranks that compare.
        call: the name of the calls; None to have them numbered.
        may_differ: whether the digests of one tensor, which differ, are accepted; () for a rank that has none.
    """
    names = (None, None) if call is None else (f"{call}.count", f"{call}.digests")
    told = ops.allgather(np.array([[_basics.rank(), len(mine)]]), names[0], process_set)
    ranks, counts = told.T  # of those that have not joined
    of_ranks = np.split(ops.allgather(mine, names[1], process_set), np.cumsum(counts)[:-1])
    rows = [[tuple(each[index : index + 1].ravel().tolist()) for each in of_ranks] for index in range(counts.max())]
    differing = [index for index, of_one in enumerate(rows) if len(set(of_one)) > 1 and not may_differ(of_one)]
    if differing:
        is_alike = all(len({row[:2] for row in rows[index]}) == 1 for index in differing)
        kind = ContentsError if is_alike else MismatchError
        raise kind(_describe(named, differing, rows[differing[0]], ranks.tolist()))


def _describe(named: Sequence[Named], differing: Sequence[int], rows: Sequence[Row], ranks: Sequence[int]) -> str:
    right = max(rows, key=rows.count)  # the value of most ranks; without a majority, that of the first
    alike = [rank for rank, row in zip(ranks, rows, strict=True) if row == right]
    odd = [rank for rank, row in zip(ranks, rows, strict=True) if row != right]
    first, *others = differing
    what = f"number {first} (there is none here)"
    if first < len(named):
        what = f"'{named[first].name}' ({named[first].kind} here)"
    same_kind = len({row[:2] for row in rows}) == 1
    differs = "has other bits" if same_kind else "has another name, dtype or shape, or does not exist,"
    names = [f"'{named[index].name}'" if index < len(named) else f"number {index}" for index in others]
    if len(names) > _N_NAMES:
        names[_N_NAMES:] = [f"{len(names) - _N_NAMES} more"]
    return (
        f"The ranks have diverged: tensor {what} {differs} on {_text(odd)} than on {_text(alike)}. It is the first of "
        f"those compared that differs{'; others are ' if names else ''}{', '.join(names)}."
    )


def _text(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
