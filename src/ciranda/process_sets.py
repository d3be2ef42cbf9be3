"""Process sets: the ranks that take part in a collective.

All ranks of the world create and remove a set together; its members then use it without the others. Sets may overlap:
no rank waits for a set that it is not in, whatever the order in which ranks use their sets.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import index

from ciranda import _basics, _core
from ciranda.engines.loaded_mpi import Communicator, is_communicator
from ciranda.errors import InvalidArgumentError, NotSupportedError

__all__ = [
    "ProcessSet",
    "add_process_set",
    "get_process_set_ids_and_ranks",
    "global_process_set",
    "remove_process_set",
]

_ADD = _core.COLLECTIVES["add_process_set"]
_REMOVE = _core.COLLECTIVES["remove_process_set"]


class ProcessSet:
    """A set of ranks. Its `process_set_id` is None unless the set is added to the world; that of all ranks is 0.

    Args:
        ranks_or_comm: the ranks, in any order: any iterable of integers; counted in the whole world. Or a communicator
            of mpi4py, whose members it has: `init()` takes such a set, and `ranks` is None before.

    Raises:
        InvalidArgumentError: neither; a rank is no integer, or comes twice.
    """

    process_set_id: int | None
    _lane: int = 0
    _needs_all: bool = False
    _position: int | None = None  # among those that an elastic job's init() was given
    _communicator: Communicator | None = None

    def __init__(self, ranks_or_comm: Iterable[int] | Communicator) -> None:
        self.process_set_id = None
        self._ranks: list[int] = []
        if is_communicator(ranks_or_comm):
            self._communicator = ranks_or_comm
            return
        if isinstance(ranks_or_comm, (str, bytes)) or not isinstance(ranks_or_comm, Iterable):
            raise InvalidArgumentError(
                f"a ProcessSet is made of a sequence of ranks or a communicator of mpi4py, not {ranks_or_comm!r}"
            )
        given = list(ranks_or_comm)
        try:
            self._ranks = sorted(index(rank) for rank in given)
        except TypeError:
            raise InvalidArgumentError(f"the ranks of a process set are integers; got {given}") from None
        if len(set(self._ranks)) != len(self._ranks):
            raise InvalidArgumentError(f"a rank is twice in the process set {given}")

    @property
    def ranks(self) -> list[int] | None:
        """The ranks of this set, in order; for the set of all ranks, or of a communicator, None before init()."""
        if self._communicator is not None:
            return None
        return self._members() if self.process_set_id == 0 else self._ranks

    @property
    def is_of_communicator(self) -> bool:
        """Whether the ranks are not known yet, but only a communicator that has them."""
        return self._communicator is not None

    def _members(self) -> list[int] | None:
        if self.process_set_id is None or not _basics.is_initialized():
            return None
        if _basics.has_numbers_only():
            return list(range(_basics.size())) if self.process_set_id == 0 else self._ranks
        return _basics.engine().ranks_of(self.process_set_id) or None

    def size(self) -> int | None:
        """The number of ranks in this set; None if there is no such set now."""
        members = self._members()
        return None if members is None else len(members)

    def rank(self) -> int | None:
        """This process's position in the set; None if it is not in the set, or there is no such set now."""
        members = self._members()
        return members.index(_basics.rank()) if members and _basics.rank() in members else None

    def included(self) -> bool | None:
        """Whether this process is in the set; None if there is no such set now."""
        members = self._members()
        return None if members is None else _basics.rank() in members

    def lane(self, number: int) -> ProcessSet:
        """Return this set for requests on another lane (communicator): lanes do not wait for each other.

        The same calls must use the same lane on every rank of the set.

        Args:
            number: 0 (the default of requests) to 63. A lane is created on first use.

        Raises:
            InvalidArgumentError: the set has not been added, or `number` is negative. A higher number is refused when
                the lane is used.
        """
        id_of(self)
        if number < 0:
            raise InvalidArgumentError(f"lane {number} does not exist: lanes are counted from 0")
        copy = self._copy()
        copy._lane = number
        return copy

    def needing_all(self) -> ProcessSet:
        """Return this set for requests that fail, with MismatchError, while a rank of the set has joined.

        The same calls must do this on every rank of the set.
        """
        copy = self._copy()
        copy._needs_all = True
        return copy

    def _copy(self) -> ProcessSet:
        copy = ProcessSet(self._ranks)
        copy.process_set_id, copy._lane, copy._needs_all = self.process_set_id, self._lane, self._needs_all
        return copy

    def __repr__(self) -> str:
        lane = f", lane={self._lane}" if self._lane else ""
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}{lane})"


def _make_global() -> ProcessSet:
    everyone = ProcessSet([])
    everyone.process_set_id = 0
    return everyone


global_process_set = _make_global()
#: The sets of this world by their number, except the global one.
_added: dict[int, ProcessSet] = {}
#: Further sets that have the number of one of these, or the global one's, since their ranks have become the same.
_sharing: list[ProcessSet] = []


def added_sets() -> list[ProcessSet]:
    """Return the sets of this world except the global one, in the order in which they were added."""
    return [*(_added[number] for number in sorted(_added)), *_sharing]


def share_number(process_set: ProcessSet) -> bool:
    """Give the set the number of one with the same ranks, if there is one; return whether there is.

    Of an elastic job's sets, some may have the same living members, and the engine has one set of the same ranks.
    """
    for number in (0, *_added):
        if _basics.engine().ranks_of(number) == process_set._ranks:
            process_set.process_set_id = number
            _sharing.append(process_set)
            return True
    return False


def id_of(process_set: ProcessSet) -> int:
    """Return the engine's number of `process_set`, its lane and whether all of its ranks are needed.

    Raises InvalidArgumentError (a ValueError) if it was not added, TypeError if it is none.
    """
    if process_set is global_process_set:  # nearly always
        return 0
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"process_set must be a ProcessSet, as add_process_set() returns it, not {process_set!r}")
    if process_set.process_set_id is None:
        raise InvalidArgumentError(
            f"{process_set!r} has not been added, or was removed: all ranks must call add_process_set() with it first"
        )
    return process_set.process_set_id | process_set._lane << 32 | process_set._needs_all << 63


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Create a process set. All ranks of the world must call this, with the same ranks; it returns when all have.

    Args:
        process_set: a ProcessSet that has not been added, or the ranks of one.

    Returns:
        The set, with its `process_set_id`.

    Raises:
        InvalidArgumentError: a rank that does not exist, or a set of the same ranks exists already.
        NotSupportedError: the set is made of a communicator; `init()` takes it.
        MismatchError: other ranks add other sets, and no thread of any rank can do anything else. At once, on all.
        TimeoutError: other ranks have not added it within CIRANDA_STALL_SHUTDOWN_SECONDS.
    """
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if added.is_of_communicator:
        raise NotSupportedError(
            "add_process_set(): other ranks cannot know the members of a communicator: give the set to "
            "init(process_sets=[...]), or give the ranks"
        )
    if added.process_set_id is not None:
        raise InvalidArgumentError(f"{added!r} has been added already")
    operation = _basics.engine().submit_bare(_ADD, list(added.ranks or []))
    operation.wait()
    added.process_set_id = operation.value()
    _added[added.process_set_id] = added
    return added


def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove a process set. All ranks of the world must call this; pending calls of the set fail.

    Returns:
        True. False if there is no such set now.

    Raises:
        InvalidArgumentError: `process_set` is the global one.
    """
    if process_set is global_process_set or process_set.process_set_id == 0:
        raise InvalidArgumentError("the global process set cannot be removed")
    if process_set.process_set_id is None:
        return False
    operation = _basics.engine().submit_bare(_REMOVE, [process_set.process_set_id])
    operation.wait()
    _added.pop(process_set.process_set_id, None)
    process_set.process_set_id = None
    return True


def get_process_set_ids_and_ranks() -> dict[int, list[int]]:
    """Return the ranks of every process set by its number, the global one included."""
    connected = _basics.engine()
    return {number: connected.ranks_of(number) for number in (0, *_added)}


def _forget_all() -> None:
    """Forget the sets of a world that has ended."""
    for each in added_sets():
        each.process_set_id = None
    _added.clear()
    _sharing.clear()


_basics.at_end.append(_forget_all)
