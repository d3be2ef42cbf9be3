"""Process sets: the ranks that take part in a collective. Only the set of all ranks exists so far."""

from __future__ import annotations

from collections.abc import Sequence

from ciranda import _basics
from ciranda.errors import InvalidArgumentError, NotSupportedError

__all__ = ["ProcessSet", "add_process_set", "global_process_set", "remove_process_set"]


class ProcessSet:
    """A set of ranks. `process_set_id` is None until the set is registered; the set of all ranks has 0."""

    process_set_id: int | None
    ranks: list[int] | None

    def __init__(self, ranks_or_comm: Sequence[int]) -> None:
        if isinstance(ranks_or_comm, str) or not isinstance(ranks_or_comm, Sequence):
            raise NotSupportedError("a ProcessSet is made of a sequence of ranks; MPI communicators are not supported")
        self.process_set_id = None
        self.ranks = sorted(int(rank) for rank in ranks_or_comm)
        if len(set(self.ranks)) != len(self.ranks):
            raise InvalidArgumentError(f"a rank stands twice in the process set {list(ranks_or_comm)}")

    def size(self) -> int | None:
        """The number of ranks in this set; None if it is not registered."""
        return None if self.process_set_id is None else _basics.size()

    def rank(self) -> int | None:
        """This process's position in the set; None if the set is not registered."""
        return None if self.process_set_id is None else _basics.rank()

    def included(self) -> bool | None:
        """Whether this process is in the set; None if the set is not registered."""
        return None if self.process_set_id is None else True

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


def _make_global() -> ProcessSet:
    everyone = ProcessSet([])
    everyone.process_set_id = 0
    everyone.ranks = None  # all of them, as many as there are
    return everyone


global_process_set = _make_global()


def require_global(process_set: ProcessSet) -> None:
    """Raise unless `process_set` is the set of all ranks."""
    if process_set is not global_process_set:
        raise NotSupportedError(
            f"{process_set!r} cannot be used: process sets other than global_process_set are not available yet"
        )


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Not available yet: raises NotSupportedError."""
    raise NotSupportedError(f"process sets are not available yet; cannot add {process_set!r}")


def remove_process_set(process_set: ProcessSet) -> bool:
    """Not available yet: raises NotSupportedError."""
    raise NotSupportedError(f"process sets are not available yet; cannot remove {process_set!r}")
