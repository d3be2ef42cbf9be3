"""The world that this process belongs to: joining, leaving, ranks and sizes."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ciranda import _autotune_log, _core, _misspelt, _rejoining, _taken
from ciranda._ending import Ending
from ciranda._ways_to_meet import Way, slot_of, way_to_meet
from ciranda.errors import InvalidArgumentError, NotInitializedError, NotSupportedError

if TYPE_CHECKING:
    from ciranda.process_sets import ProcessSet

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
    """

    engine: _core.Engine | None = None
    epoch: int = 0
    n_inits: int = 0
    left: _rejoining.Left | None = None
    told: dict[str, str] | None = None
    of_parent: Numbers | None = None


#: Called when the world ends; for modules that keep state of a world.
at_end: list[Callable[[], None]] = []

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
        raise NotInitializedError(_NOT_INITIALIZED)
    return world.engine


def _numbers() -> _core.Engine | Numbers:
    """Return what says rank(), size() and so on."""
    return world.engine or world.of_parent or engine()


def init(
    comm: Sequence[int] | None = None,
    process_sets: Sequence[ProcessSet] | str | None = None,
    num_lanes: int | None = None,
) -> None:
    """Join the world that the environment describes; without a description, form a world of one.

    `ciranda run` and `horovodrun` set the environment. Under torchrun, and if torch.distributed has a process group
    already, rendezvous goes through torch's store; under paddle.distributed.launch through the first endpoint, if
    CIRANDA_SECRET_FILE names a file with a secret. If a launcher has started several processes without a rendezvous
    (mpirun, srun), this fails, unless CIRANDA_ENGINE=none makes each process a world of one.

    Returns when every rank has joined. May be called again after `shutdown()`, by all ranks alike. Does nothing if this
    process is in a world already, which may also be one that a binding in C has joined; but if a collective of all
    ranks has failed there, or a rank has left it or died, this leaves it and forms another, with the same process sets.
    Others wait there for a rank that has called init() less often: until it comes, it is in a world that they have
    left, where its collectives fail with AbortedError.

    If it fails, this process is in no world: the next call begins anew.

    Args:
        comm: None, or the list of all ranks. Other values are refused.
        process_sets: process sets to add at once, the same on all ranks. "dynamic", which Horovod needs before sets can
            be added later, is accepted and has no effect: sets can always be added.
        num_lanes: the number of lanes of each process set (see `ProcessSet.lane()`) that are created at once, the same
            on all ranks. By default CIRANDA_NUM_LANES, or 1. Others are created on first use.

    Raises:
        InvalidArgumentError: an environment variable does not parse, or an argument is refused; this process would be a
            world of one, but a launcher has started several; this process is in a world already, with another number
            of lanes than `num_lanes`; or it is in one by another engine, a second loaded copy of libciranda.
        MismatchError: the ranks give different numbers of lanes, or other process sets.
        NotSupportedError: this process was forked by a rank, or started by one that is in the world, whose place it
            would take.
        TimeoutError: a rank did not join within CIRANDA_START_TIMEOUT; the message names it.
    """
    if world.of_parent is not None and world.of_parent.size > 1:
        raise NotSupportedError(
            "init(): this process was forked by a rank, whose place it would take in the next world. For a world of "
            "its own start a new program instead, with 'ciranda run'"
        )
    if isinstance(process_sets, str) and process_sets != "dynamic":
        raise InvalidArgumentError(f'init(process_sets={process_sets!r}): give a list of sets, or "dynamic"')
    if comm is not None and not isinstance(comm, Sequence):
        raise NotSupportedError("init(comm=...): MPI communicators are not supported; give None")
    world.n_inits += 1
    if world.engine is not None and not world.engine.is_open:
        _leave()  # other code has shut it down
    is_found = world.engine is None and _find()
    if world.engine is not None:
        if num_lanes not in (None, world.engine.num_lanes):
            raise InvalidArgumentError(
                f"init(num_lanes={num_lanes}): this process is in a world already, which has "
                f"{world.engine.num_lanes}; call shutdown() first"
            )
        is_behind = world.left is not None
        if not (is_behind or (_rejoining.is_due(world.engine) and _can_meet_again())):
            if is_found:
                _begin(process_sets)
            return
        just_left = _rejoining.leave(world.engine, _leave)
        world.left = world.left or just_left
    _taken.require_free()
    _misspelt.warn()
    ending.watch()
    left = world.left
    told = _what_to_tell()
    connected, is_behind = _join(num_lanes if left is None else left.num_lanes, told)
    if comm and sorted(comm) != list(range(connected.size)):
        size = connected.size
        connected.shutdown()
        raise NotSupportedError(f"init(comm={list(comm)}): a world of {size} ranks cannot be joined by some only")
    world.engine = connected
    _taken.tell(connected)
    if is_behind:
        return
    try:
        _begin(process_sets if left is None else left.process_sets)
    except BaseException:
        _leave()
        raise
    world.left = None


def _find() -> bool:
    """Adopt the world that a binding in C has joined in this process, if there is one; return whether."""
    world.engine = _core.attach()
    if world.engine is not None:
        ending.watch()
        _taken.tell(world.engine)
    return world.engine is not None


def _begin(process_sets: Sequence[ProcessSet] | str | None) -> None:
    if process_sets and not isinstance(process_sets, str):
        from ciranda.process_sets import add_process_set  # which needs this module

        for process_set in process_sets:
            add_process_set(process_set)


def _what_to_tell() -> dict[str, str]:
    """Return settings of the world from the variables of torch's or Paddle's launcher, if CIRANDA_ ones lack them."""
    way = way_to_meet(os.environ, _size_of_group(), world.told is not None)
    if way is Way.ENGINE:
        return {}
    if way is Way.PADDLE:
        from ciranda._endpoints import by_endpoints

        meet_at(by_endpoints(os.environ))
    elif way is not Way.AGAIN:
        try:
            from ciranda.torch.distributed import joining  # which needs this module
        except ImportError as error:
            raise InvalidArgumentError(
                f"WORLD_SIZE={os.environ['WORLD_SIZE']} says that there are several processes, which meet at a store "
                f"of torch.distributed, but torch cannot be imported ({error}): install it, or start them with "
                "'ciranda run'"
            ) from None
        meet_at(joining.by_group() if way is Way.GROUP else joining.by_variables())
    return world.told or {}


def _size_of_group() -> int:
    """The size of torch.distributed's default group; 1 without one that has a store for real processes."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized() or dist.get_backend() in ("fake", "mpi"):
        return 1
    return int(dist.get_world_size())


def meet_at(told: dict[str, str]) -> None:
    """Join the next worlds by the settings `told`, which override the environment; they are numbered from 0 there."""
    if told is not world.told:
        world.told, world.epoch = told, 0


def _can_meet_again() -> bool:
    return world.told is not None or "CIRANDA_STORE" in os.environ


def _join(num_lanes: int | None, told: dict[str, str]) -> tuple[_core.Engine, bool]:
    """Join the next world; after a failure, the first in which no program is behind this one.

    Returns:
        The engine, and whether this program is behind others: they have left this world, and wait for the next.
    """
    while True:
        epoch = world.epoch if told else max(world.epoch, _core.next_epoch())
        world.epoch = epoch + 1  # also if this fails: later ranks get an error, and try the next as this rank does
        connected = _core.connect(epoch, num_lanes, told, slot_of(os.environ))
        if epoch == 0 or connected.size == 1:
            return connected, False
        try:
            n_behind = _rejoining.compare(connected, 0 if world.left is None else world.n_inits)
        except BaseException:
            connected.shutdown()
            raise
        if n_behind is not None:
            return connected, n_behind > 0
        connected.shutdown()


def shutdown() -> None:
    """Leave the world. Pending calls of this rank fail with AbortedError, as do calls of others that need this rank.

    Bindings in C that share the world leave it too; a shutdown by one of them leaves it for Python. Does nothing
    without a world. Called at exit; and as soon as the main thread has ended by `sys.exit()` or an exception, so that
    other threads that wait for a collective do not keep the process alive.
    """
    world.left = None
    _leave()


def _leave() -> None:
    connected, world.engine = world.engine, None
    for forget in at_end:
        forget()
    if connected is not None:
        kept_slot = connected.kept_slot
        _autotune_log.write(connected)
        connected.shutdown()
        _taken.tell_no_more(kept_slot)


def is_initialized() -> bool:
    """Whether this process is in a world that `init()` has joined, or found; or was forked by a rank of one."""
    return world.of_parent is not None if world.engine is None else world.engine.is_open


def is_forked() -> bool:
    """Whether this process was forked by a rank, and is in no world of its own."""
    return world.engine is None and world.of_parent is not None


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
    if connected is not None:
        if connected.is_open:
            world.of_parent = Numbers(*(getattr(connected, name) for name in Numbers._fields))
        connected.abandon()


ending = Ending(shutdown)
os.register_at_fork(after_in_child=_forget_after_fork)
