"""Inserts collectives on gradients into a program: the common part of both IRs.

A plan (`ciranda._frameworks.planner`) has the buckets of gradients, with the ring of each and the positions of its
start and its sync. Every start before a sync is an input of it, and each sync one of the next. Paddle's executor runs
operators in any order that their inputs allow: so no thread blocks in a sync before the earlier starts of this rank.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from ciranda import _basics
from ciranda._core import REDUCE_OPS
from ciranda._frameworks.marks import is_distributed
from ciranda._frameworks.objects import allgather_object
from ciranda._frameworks.planner import Bucket, Plan, Sync, Tensor, plan
from ciranda._ops import Average
from ciranda.errors import InvalidArgumentError, MismatchError
from ciranda.paddle.passages import Key, Operator

_NAME_OF = {number: name for name, number in REDUCE_OPS.items()}

#: The name of a parameter's snapshot.
SNAPSHOT = "{}.snapshot"

#: The largest MiB of gradients in one operation, unless one gradient alone is larger.
BUCKET_MB = 4.0


class Pair(NamedTuple):
    """A parameter of a program, and what is combined: its gradient as the backward pass leaves it, or its new value."""

    name: str
    parameter: Any
    gradient: Any


@dataclass(frozen=True)
class Combining:
    """How tensors of a program are combined."""

    op: int = Average
    prescale: float = 1.0
    postscale: float = 1.0
    #: The beginning of names.
    prefix: str = "GradAllReduce"
    #: Of this many runs of the program, the last one communicates.
    every: int = 1
    #: The dtype to send, as a dtype of Paddle; None: that of the tensors.
    wire: Any = None
    #: The name of a tensor that is sent alone, and returns as zeros, so that the program knows that a run communicates.
    flag: str = ""

    def start(self, bucket: Bucket) -> dict[str, Any]:
        """Return the attributes of the operator that starts a bucket."""
        return {
            "name": self.name_of(bucket),
            "ring_id": bucket.lane,
            "op": _NAME_OF[self.op],
            "prescale": repr(0.0 if bucket.names == (self.flag,) else float(self.prescale)),
            "postscale": repr(float(self.postscale)),
            "every": self.every,
        }

    def planned(self, tensor: Tensor) -> Tensor:
        """Return the tensor for the planner; the flag with a dtype of its own, and so in a bucket of its own."""
        return replace(tensor, dtype=self.flag) if self.flag and tensor.name == self.flag else tensor

    def name_of(self, bucket: Bucket) -> str:
        """Return the name of the bucket's transfer, the same on every rank."""
        return f"{self.prefix}.{bucket.name}"


class Rewritable(Protocol):
    """A program of one of the IRs, to be rewritten."""

    def updates(self) -> list[Pair]:
        """Return the parameters that the program's optimizer updates, with their raw gradients.

        Raises:
            InvalidArgumentError: it has no known optimizer, or a gradient cannot be found.
        """

    def updated(self) -> list[Pair]:
        """Return pairs of each parameter that the optimizer updates, and its updated value."""

    def states(self, pairs: list[Pair]) -> list[Pair]:
        """Return pairs of the updated optimizer states of each element of these parameters, as momenta."""

    def tensor(self, pair: Pair, is_own: bool) -> Tensor:
        """Return where a gradient is written and read. Raises InvalidArgumentError for what cannot be combined."""

    def key(self, pair: Pair) -> Key:
        """Return what identifies the gradient in the program."""

    def is_sparse(self, pair: Pair) -> bool:
        """Whether a gradient has only some rows of the parameter."""

    def trace(self) -> Iterator[Operator]:
        """Return the operators of the program as it is now, for `check_combined()`."""

    def operators(self) -> list[str]:
        """Return the names of the operators, to be compared over the ranks."""

    def readers(self, pair: Pair) -> list[str]:
        """Return the names of the operators that read a gradient."""

    def look(self, pairs: Sequence[Pair], name: str) -> None:
        """Show these parameters to the look of that name before all that changes them, or begins a call."""

    def start(self, position: int, pairs: Sequence[Pair], combining: Combining, bucket: Bucket) -> None:
        """Start a bucket at that position of the original program."""

    def sync(self, position: int, pairs: Sequence[Pair], names: Sequence[str], ring: int, wire: Any) -> None:
        """Wait, at that position, for the calls of these names, and pass the results to their readers.

        Args:
            position: of the original program.
            pairs: the gradients of those calls; also those that have been started and are not waited for.
            names: of the calls.
            ring: for the scheduler.
            wire: as of Combining.
        """

    def agree_on_finite(self, name: str) -> None:
        """Make loss scaling check the gradients of all ranks, not only this rank's, for finite values."""

    def current(self, pair: Pair) -> Any:
        """Return the combined gradient, after all insertions."""

    def broadcast_startup(self, startup: Any, distributed: Collection[str]) -> None:
        """Broadcast rank 0's parameters at the end of the startup program, except distributed ones."""

    def behind_optimizer(self) -> AbstractContextManager[Any]:
        """Return a context in which Paddle's functions write to the end of the program, as part of the optimizer."""

    def snapshot(self, pair: Pair) -> Any:
        """Return a tensor that the program keeps from run to run, of a parameter's shape and dtype."""

    def begin_snapshots(self, startup: Any, names: Sequence[str]) -> None:
        """Initialize the snapshots of these parameters at the end of the startup program."""


def require_optimizer(pairs: Mapping[str, Pair]) -> list[Pair]:
    """Return the pairs of a program's optimizer. Raises InvalidArgumentError if there are none."""
    if not pairs:
        raise InvalidArgumentError(
            "the program has no optimizer that is known: call optimizer.minimize(loss) first, and give the program "
            "that contains it"
        )
    return list(pairs.values())


def check_names(distributed: Iterable[str], pairs: Iterable[Pair]) -> None:
    """Raise InvalidArgumentError for a name of a distributed parameter that does not exist."""
    known = {pair.name for pair in pairs}
    unknown = sorted(set(distributed) - known)
    if unknown:
        raise InvalidArgumentError(f"distributed: there is no trained parameter {unknown}; there are {sorted(known)}")


def is_own(pair: Pair, distributed: Collection[str]) -> bool:
    """Whether a parameter is local: by its mark, or by name."""
    return pair.name in distributed or is_distributed(pair.parameter)


#: The operator that checks, for loss scaling, whether gradients are finite.
FINITE = "check_finite_and_unscale"

#: The attribute of optimizers' operators that update only the rows of a sparse gradient.
LAZY = "lazy_mode"


def lazy_error(name: str) -> InvalidArgumentError:
    """Return the error for a parameter whose gradient is sparse, and its optimizer lazy."""
    return InvalidArgumentError(
        f"the gradient of {name} is sparse, and the optimizer updates only the rows that it has ({LAZY}=True); "
        f"combined over the ranks it has all rows: use {LAZY}=False, or the embedding with sparse=False"
    )


#: Operators that compute one number from several gradients, which would differ between ranks; and the remedy.
_MIXING = {
    "squared_l2_norm": "the norm by which gradients are clipped: leave the parameter out (need_clip=False)",
}


def check_separate(program: Rewritable, pairs: Iterable[Pair]) -> None:
    """Raise InvalidArgumentError if a local gradient changes the step of all parameters.

    The shared parameters would then differ between ranks.
    """
    for pair in pairs:
        for reader in program.readers(pair):
            if reader in _MIXING:
                raise InvalidArgumentError(
                    f"the gradient of {pair.name}, which is each rank's own, is part of {_MIXING[reader]}"
                )


def combine(
    program: Rewritable,
    pairs: Sequence[Pair],
    combining: Combining,
    nrings: int,
    bucket_mb: float,
    distributed: Collection[str] = (),
) -> Plan:
    """Put the collectives for all of `pairs` into the program; return the plan.

    Raises:
        InvalidArgumentError: `nrings` or `bucket_mb` is out of range, or a gradient cannot be combined.
        MismatchError: the ranks have different programs.
    """
    if isinstance(bucket_mb, bool) or not isinstance(bucket_mb, (int, float)) or not 0 <= bucket_mb < float("inf"):
        raise InvalidArgumentError(f"bucket_mb must be a number from 0; got {bucket_mb!r}")
    check_names(distributed, pairs)
    pairs = _distinct(program, pairs, distributed)
    by_name = {pair.name: pair for pair in pairs}
    own = {pair.name for pair in pairs if is_own(pair, distributed)}
    tensors = [combining.planned(program.tensor(pair, pair.name in own)) for pair in pairs]
    own_pairs = [pair for pair in pairs if pair.name in own]
    check_separate(program, own_pairs)
    operators = program.operators()
    made = plan(tensors, nrings, int(bucket_mb * (1 << 20)), end=len(operators))
    compare_with_other_ranks([*operators, *made.describe()])
    waiting: list[int] = []
    for position, what in made.insertions():
        if isinstance(what, Sync):
            members = [by_name[name] for index in waiting for name in made.buckets[index].names]
            names = [combining.name_of(made.buckets[index]) for index in what.buckets]
            program.sync(position, members, names, made.buckets[what.buckets[0]].lane, combining.wire)
            waiting = [index for index in waiting if index not in what.buckets]
        else:
            program.start(position, [by_name[name] for name in what.names], combining, what)
            waiting.append(what.index)
    if any(FINITE in program.readers(pair) for pair in own_pairs):
        program.agree_on_finite(f"{combining.prefix}.found_infinite")
    return made


def _distinct(program: Rewritable, pairs: Iterable[Pair], distributed: Collection[str]) -> list[Pair]:
    """Return the pairs without those whose gradient is another's, too: what reads it reads what is combined once."""
    found: dict[Key, Pair] = {}
    for pair in pairs:
        first = found.setdefault(program.key(pair), pair)
        if is_own(first, distributed) != is_own(pair, distributed):
            raise InvalidArgumentError(
                f"{first.name} and {pair.name} have the same gradient, but only one of them is each rank's own"
            )
    return list(found.values())


def compare_with_other_ranks(lines: list[str]) -> None:
    """Raise MismatchError, on all ranks, unless all have the same lines: it names the first that differs, and both."""
    if _basics.size() == 1:
        return
    everyones = allgather_object(lines, "ciranda.paddle.program")
    first = everyones[0]
    for rank, theirs in enumerate(everyones):
        if theirs == first:
            continue
        index = next(
            (index for index, pair in enumerate(zip(first, theirs, strict=False)) if pair[0] != pair[1]),
            min(len(first), len(theirs)),
        )
        of_first, of_other = (each[index] if index < len(each) else "its end" for each in (first, theirs))
        raise MismatchError(
            f"the ranks have different programs: operator {index} is {of_first} on rank 0, but {of_other} on rank "
            f"{rank}. Build the same program on every rank"
        )
