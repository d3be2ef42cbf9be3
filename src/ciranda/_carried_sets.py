"""The process sets of an elastic world, which the next one takes over by their members, whatever ranks these have then.

A set keeps the members that live; one that has none is dissolved. A process that is started later belongs to none of
them. All ranks make the sets of rank 0, in its order, so that a set has the same number on all; a newcomer's sets are
told by their position in `init(process_sets=...)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ciranda.errors import InvalidArgumentError, NotSupportedError
from ciranda.process_sets import ProcessSet, add_process_set, added_sets, share_number

Key = tuple[int, int]


@dataclass(frozen=True)
class Wanted:
    """What the next world of this process is to have.

    Attributes:
        num_lanes: of each set; None for the default.
        process_sets: in the order of their numbers.
        members: of each set; None for a process that has been in no world, whose sets rank 0 knows.
    """

    num_lanes: int | None = None
    process_sets: list[ProcessSet] = field(default_factory=list)
    members: list[list[Key]] | None = None


def given(process_sets: Sequence[ProcessSet], num_lanes: int | None) -> Wanted:
    """Return what `init()` was given.

    Raises:
        NotSupportedError: a set is made of a communicator, whose members do not change as the world does.
    """
    for position, process_set in enumerate(process_sets):
        if process_set.is_of_communicator:
            raise NotSupportedError("init(process_sets=...): in an elastic job give the ranks, not a communicator")
        process_set._position = position
    return Wanted(num_lanes, list(process_sets))


def with_members(wanted: Wanted, members: Sequence[Key]) -> Wanted:
    """Return `wanted` with the members of each set, whose ranks are those of the world with these members, by rank."""
    for process_set in wanted.process_sets:
        if not all(0 <= rank < len(members) for rank in process_set._ranks):
            raise InvalidArgumentError(f"{process_set!r}: there are {len(members)} ranks, from 0")
    sets = wanted.process_sets
    return Wanted(wanted.num_lanes, sets, [[members[rank] for rank in each._ranks] for each in sets])


def present(num_lanes: int, members: Sequence[Key]) -> Wanted:
    """Return what the present world has, whose members these are, by rank."""
    return with_members(Wanted(num_lanes, added_sets()), members)


def make(wanted: Wanted, members: Sequence[Key]) -> None:
    """Make the sets of rank 0 in the world with these members, by rank. All ranks call this."""
    from ciranda._frameworks.objects import broadcast_object  # with NumPy, which init() does without

    sets = wanted.process_sets
    rank_of = {member: rank for rank, member in enumerate(members)}
    mine = [sorted(rank_of[member] for member in of_set if member in rank_of) for of_set in wanted.members or []]
    rows: list[tuple[int | None, list[int]]] = broadcast_object(
        [(each._position, ranks) for each, ranks in zip(sets, mine, strict=False)], name="ciranda.elastic.process_sets"
    )
    of_position = {each._position: each for each in sets}
    for number, (position, ranks) in enumerate(rows):
        is_new = wanted.members is None
        process_set = of_position.get(position, ProcessSet([])) if is_new else sets[number]
        if ranks:
            process_set._ranks, process_set._position = ranks, position
            if not share_number(process_set):
                add_process_set(process_set)
