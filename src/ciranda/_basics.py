"""The world that this process belongs to: its engine, ranks and sizes. `ciranda._init` joins and leaves it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ciranda import _core
from ciranda._spans import profiler, step_ended
from ciranda.errors import InvalidArgumentError, NotInitializedError

if TYPE_CHECKING:
    from ciranda._carried_sets import Wanted
    from ciranda._rejoining import Left

_NOT_INITIALIZED = "Ciranda has not been initialized; call init() first."


class Numbers(NamedTuple):
    """What a rank knows of itself, as its engine says it."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


class World:
    """The engine of this process, and the way in which this process joined its world.

    Attributes:
        engine: None if the process is in no world.
        epoch: the number of worlds that the process has tried to join so far.
        n_inits: the number of its calls of init().
        left: the state with which init() left a failed world, to form another; None otherwise.
        told: settings that override the environment, derived from another launcher's variables; None without such.
        of_parent: in a forked child of a rank, that rank's numbers; None otherwise.
        awaited: under `ciranda run --elastic`, between init() and the first world, the numbers that this process would
            have if it joined at once, with all others that have been started; None otherwise.
        wanted, members: there, what the next world is to have; what identifies the processes of this one, by rank.
    """

    engine: _core.Engine | None = None
    epoch: int = 0
    n_inits: int = 0
    left: Left | None = None
    told: dict[str, str] | None = None
    of_parent: Numbers | None = None
    awaited: Numbers | None = None
    wanted: Wanted | None = None
    members: Sequence[tuple[int, int]] = ()


#: Called when the world ends; for modules that keep state of a world.
at_end: list[Callable[[], None]] = []

#: Called when an elastic training has left its world, to form another. No exception is being handled there, whose
#: traceback would keep what that world's functions refer to.
between_worlds: list[Callable[[], None]] = []

#: Called when a process of an elastic job has joined its first world.
at_first_world: list[Callable[[], object]] = []

#: Read directly where a call must be cheap; `engine()` is the safe way.
world = World()


def engine() -> _core.Engine:
    """Return the connected engine. Raises NotInitializedError (a ValueError) without one."""
    if world.engine is None:
        _core.stay_if_detained()
        if world.of_parent is not None:
            raise NotInitializedError(
                f"this process was forked by rank {world.of_parent.rank}: it knows that rank's numbers, but is no rank "
                "itself; call collectives there, and hand it the results"
            )
        if world.awaited is not None:
            raise NotInitializedError(
                "under --elastic a process joins its world in the function that elastic.run wraps: call collectives "
                "there, where those that are started later meet the others"
            )
        raise NotInitializedError(_NOT_INITIALIZED)
    return world.engine


def _numbers() -> _core.Engine | Numbers:
    """Return what says rank(), size() and so on."""
    return world.engine or world.of_parent or world.awaited or engine()


def numbers_of(connected: _core.Engine) -> Numbers:
    """Return the numbers of this process in a world."""
    return Numbers(*(getattr(connected, name) for name in Numbers._fields))


def is_initialized() -> bool:
    """Whether this process is in a world that `init()` has joined, or found; or was forked by a rank of one.

    Under `ciranda run --elastic` also before training, where the process is to join a world.
    """
    if world.engine is None:
        return world.of_parent is not None or world.awaited is not None
    return world.engine.is_open


def has_numbers_only() -> bool:
    """Whether this process is in no world, but has a rank's numbers: a rank has forked it, or it is to join a world."""
    return world.engine is None and (world.of_parent is not None or world.awaited is not None)


def require_init() -> None:
    """Raise NotInitializedError unless this process is in a world, or is to join one."""
    if world.awaited is None:
        engine()


def rank() -> int:
    """This process's number among all, from 0 to size() - 1."""
    return _numbers().rank


def size() -> int:
    """The number of processes in the world."""
    return _numbers().size


def local_rank() -> int:
    """This process's number among those on its host."""
    return _numbers().local_rank


def local_size() -> int:
    """The number of processes on this host."""
    return _numbers().local_size


def cross_rank() -> int:
    """The number of this process's host, among the hosts that have a process with its local rank."""
    return _numbers().cross_rank


def cross_size() -> int:
    """The number of hosts that have a process with this process's local rank."""
    return _numbers().cross_size


def is_homogeneous() -> bool:
    """Whether every host has the same number of processes."""
    connected = engine()
    per_host = Counter(connected.peer(number)["host"] for number in range(connected.size))
    return len(set(per_host.values())) == 1


def step() -> None:
    """Tell that a step of the training has ended, as the optimizers of ciranda.torch do.

    `ciranda top` and metrics show the rate of steps. Does nothing without a world.
    """
    if world.engine is not None:
        world.engine.count_step()
        if profiler.marks_steps:
            step_ended(world.engine)


def peers() -> list[_core.PeerRow]:
    """Every rank of the world: rank, pid, host, address, and whether it shares memory with this one."""
    connected = engine()
    return [connected.peer(number) for number in range(connected.size)]


def require_rank(root_rank: int) -> None:
    """Raise InvalidArgumentError unless `root_rank` is a rank of the world."""
    if not 0 <= root_rank < size():
        raise InvalidArgumentError(f"root_rank {root_rank} is not a rank: there are {size()} ranks, from 0")


def _forget_after_fork() -> None:
    """Forget the world in a forked child: it is the parent's, and the child must neither use nor close it.

    It goes on to know the parent's numbers, by which workers of a data loader choose their data.
    """
    _core.forget_other_threads()
    connected, world.engine = world.engine, None
    if world.awaited is not None:
        world.of_parent, world.awaited = world.awaited, None
    if connected is not None:
        if connected.is_open:
            world.of_parent = numbers_of(connected)
        connected.abandon()


os.register_at_fork(after_in_child=_forget_after_fork)
