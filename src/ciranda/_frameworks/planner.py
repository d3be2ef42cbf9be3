"""The plan of a program's transfers: buckets of tensors, their lanes, and the positions of starts and waits.

A pure decision: the same tensors give the same plan on every rank, in whatever order they are given. Front ends insert
the plan's starts and syncs into their programs, or group hooks by it.

A program is operators 0 to n - 1. A *position* is the gap just before an operator; position n is the end. An executor
may run independent operators in any order, and a sync blocks the thread that runs it. So a plan lists for each sync the
starts that must have run before it, on every rank: no rank then blocks while another still waits for a start of that
rank. Syncs must run in their order, for the same reason.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ciranda._frameworks.naming import joined
from ciranda.errors import InvalidArgumentError

#: How many lanes a plan may use.
MAX_RINGS = 16


@dataclass(frozen=True)
class Tensor:
    """A tensor that the ranks combine, and where a program writes and reads it."""

    #: Unique. Tensors that are ready at one position are ordered by it.
    name: str
    n_bytes: int
    #: The first position at which it is complete: that behind its last writer.
    ready: int
    #: The operators that need the combined value, none of them before `ready`.
    readers: tuple[int, ...] = ()
    #: What the members of a bucket have in common. None where a collective takes any.
    dtype: Hashable = None
    #: Whether each rank keeps its own: it is in no bucket.
    is_distributed: bool = False


@dataclass(frozen=True)
class Bucket:
    """Tensors that are sent together."""

    #: Its place in `Plan.buckets`.
    index: int
    #: Of the members, in the order in which they are ready.
    names: tuple[str, ...]
    n_bytes: int
    lane: int
    #: The position at which all members are complete.
    start: int
    #: The position of the first reader of any member; the end, if there is none.
    due: int

    @property
    def name(self) -> str:
        """What the transfer is known by, on every rank."""
        return joined(self.names)


@dataclass(frozen=True)
class Sync:
    """A position at which a program waits."""

    position: int
    #: The buckets that it waits for, by index.
    buckets: tuple[int, ...]
    #: The buckets whose starts must have run before it: all that stand before it, waited for or not.
    after: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """The insertions into a program."""

    #: In the order of their starts.
    buckets: tuple[Bucket, ...]
    #: In the order in which they must run.
    syncs: tuple[Sync, ...]
    #: The names of the distributed tensors.
    local: tuple[str, ...]
    end: int

    def insertions(self) -> Iterator[tuple[int, Bucket | Sync]]:
        """Yield what to put at which position, first to last: a bucket stands for its start.

        Who inserts them from the last to the first finds all positions still valid.
        """
        placed: list[tuple[int, Bucket | Sync]] = [(bucket.start, bucket) for bucket in self.buckets]
        placed += [(sync.position, sync) for sync in self.syncs]
        yield from sorted(placed, key=lambda each: each[0])  # stable: at one position, starts come first

    def describe(self) -> list[str]:
        """Return a line of text for each insertion, and for each local tensor: to print, or to compare over ranks."""
        lines = []
        for position, what in self.insertions():
            if isinstance(what, Bucket):
                lines.append(f"{position}: start {what.name} ({what.n_bytes} bytes) on lane {what.lane}")
            else:
                lines.append(f"{position}: wait for {', '.join(self.buckets[index].name for index in what.buckets)}")
        return [*lines, *(f"local: {name}" for name in self.local)]


def plan(
    tensors: Iterable[Tensor],
    nrings: int = 1,
    bucket_bytes: int = 4 << 20,
    *,
    end: int | None = None,
    syncs: Literal["few", "each"] = "few",
) -> Plan:
    """Divide tensors into buckets, in the order in which they are ready, and these in turn over lanes.

    Args:
        tensors: in any order.
        nrings: the number of lanes, 1 to 16.
        bucket_bytes: the largest bucket, unless a tensor alone is larger; 0: each tensor alone.
        end: the number of operators of the program; by default as many as are mentioned.
        syncs: "few": a sync, at the first reader of a bucket that has not been waited for, waits for all started ones.
            "each": a bucket is waited for at its own first reader.

    Raises:
        InvalidArgumentError: (a ValueError) a number is out of range, a name occurs twice, or a tensor is read before
            it is complete.
    """
    ordered = sorted(tensors, key=lambda tensor: (tensor.ready, tensor.name))
    last = max((max(tensor.ready, *(reader + 1 for reader in tensor.readers), 0) for tensor in ordered), default=0)
    n_operators = last if end is None else end
    _check(ordered, nrings, bucket_bytes)
    if last > n_operators:
        raise InvalidArgumentError(f"a tensor is written or read behind the program's end: at {last} of {n_operators}")
    buckets = _buckets((tensor for tensor in ordered if not tensor.is_distributed), nrings, bucket_bytes, n_operators)
    local = tuple(tensor.name for tensor in ordered if tensor.is_distributed)
    return Plan(buckets, tuple(_syncs(buckets, is_greedy=syncs == "few")), local, n_operators)


def _check(ordered: Sequence[Tensor], nrings: int, bucket_bytes: int) -> None:
    if isinstance(nrings, bool) or not isinstance(nrings, int) or not 1 <= nrings <= MAX_RINGS:
        raise InvalidArgumentError(f"nrings must be a whole number from 1 to {MAX_RINGS}; got {nrings!r}")
    if bucket_bytes < 0:
        raise InvalidArgumentError(f"the size of a bucket must not be negative; got {bucket_bytes}")
    seen: set[str] = set()
    for tensor in ordered:
        if tensor.name in seen:
            raise InvalidArgumentError(f"two tensors are named {tensor.name}; names must be unique")
        seen.add(tensor.name)
        if tensor.n_bytes < 0 or tensor.ready < 0:
            raise InvalidArgumentError(f"{tensor.name} has a negative size or position: {tensor}")
        early = [reader for reader in tensor.readers if reader < tensor.ready]
        if early:
            raise InvalidArgumentError(
                f"{tensor.name} is read by operator {early[0]}, but complete only at position {tensor.ready}: what is "
                "read there cannot be the combined value"
            )


@dataclass
class _Group:
    """An incomplete bucket."""

    due: int
    names: list[str] = field(default_factory=list)
    n_bytes: int = 0
    start: int = 0

    def has_room(self, tensor: Tensor, bucket_bytes: int) -> bool:
        """Whether the tensor may travel along. Nothing is read before the last member is complete."""
        fits = self.n_bytes + tensor.n_bytes <= bucket_bytes
        return fits and bucket_bytes > 0 and tensor.ready <= self.due

    def add(self, tensor: Tensor) -> None:
        self.names.append(tensor.name)
        self.n_bytes += tensor.n_bytes
        self.start = tensor.ready
        self.due = min((self.due, *tensor.readers))


def _buckets(tensors: Iterable[Tensor], nrings: int, bucket_bytes: int, end: int) -> tuple[Bucket, ...]:
    """REQUIRES: each tensor is ready no earlier than those before it."""
    groups: list[_Group] = []
    last: dict[Hashable, _Group] = {}
    for tensor in tensors:
        group = last.get(tensor.dtype)
        if group is None or not group.has_room(tensor, bucket_bytes):
            group = last[tensor.dtype] = _Group(due=end)
            groups.append(group)
        group.add(tensor)
    groups.sort(key=lambda group: group.start)
    return tuple(
        Bucket(index, tuple(group.names), group.n_bytes, index % nrings, group.start, group.due)
        for index, group in enumerate(groups)
    )


def _syncs(buckets: Sequence[Bucket], is_greedy: bool) -> Iterator[Sync]:
    left = sorted(buckets, key=lambda bucket: bucket.due)
    while left:
        position = left[0].due
        is_here = [bucket.due == position or (is_greedy and bucket.start <= position) for bucket in left]
        waited = sorted(bucket.index for bucket, here in zip(left, is_here, strict=True) if here)
        left = [bucket for bucket, here in zip(left, is_here, strict=True) if not here]
        yield Sync(position, tuple(waited), tuple(bucket.index for bucket in buckets if bucket.start <= position))
