"""Joining the world and leaving it: init() and shutdown()."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral

from ciranda import _autotune_log, _carried_sets, _core, _line, _misspelt, _rejoining, _stacks, _taken, _timeline
from ciranda._basics import Numbers, at_end, at_first_world, between_worlds, world
from ciranda._ending import Ending
from ciranda._line import Roster
from ciranda.engines.identity import Way, doubt, identity, slot_of, way_to_meet
from ciranda.engines.loaded_mpi import Communicator, is_communicator, world_of_mpi
from ciranda.errors import InvalidArgumentError, NotSupportedError
from ciranda.process_sets import ProcessSet, add_process_set


def init(
    comm: Sequence[int] | Communicator | None = None,
    process_sets: Sequence[ProcessSet] | str | None = None,
    num_lanes: int | None = None,
) -> None:
    """Join the world that the environment describes; without a description, form a world of one.

    `ciranda run` and `horovodrun` set the environment. Under torchrun, and if torch.distributed has a process group
    already, rendezvous goes through torch's store; under srun and Open MPI's mpirun through files in a folder that the
    nodes share; under srun --mpi=pmi2 and mpiexec of MPICH and Intel MPI through their key-value space; under these
    through MPI, if mpi4py has initialized it; under paddle.distributed.launch through the first endpoint, if
    CIRANDA_SECRET_FILE names a file with a secret. If another launcher has started several processes without a
    rendezvous, this fails, unless CIRANDA_ENGINE=none makes each process a world of one.

    Returns when every rank has joined. May be called again after `shutdown()`, by all ranks alike. Does nothing if this
    process is in a world already, which may also be one that a binding in C has joined; but if a collective of all
    ranks has failed there, or a rank has left it or died, this leaves it and forms another, with the same process sets.
    Others wait there for a rank that has called init() less often: until it comes, it is in a world that they have
    left, where its collectives fail with AbortedError.

    Under `ciranda run --elastic` it returns at once: the process joins a world in the function that `elastic.run`
    wraps. Until then rank(), size() and so on are those that it would have if it joined at once, with all others that
    have been started.

    If it fails, this process is in no world: the next call begins anew.

    Args:
        comm: a communicator of mpi4py, whose members are the world, in its order: all of them call this. Or None, or
            the list of all ranks.
        process_sets: process sets to add at once, the same on all ranks; for one that is made of a communicator, every
            rank gives its own, and each of these becomes a set. "dynamic", which Horovod needs before sets can
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
    if comm is not None and not is_communicator(comm) and not _is_list_of_ranks(comm):
        raise InvalidArgumentError(
            f"init(comm={comm!r}): give a communicator of mpi4py, the list of all ranks, or None"
        )
    world.n_inits += 1
    if world.engine is not None and not world.engine.is_open:
        _leave()  # other code has shut it down
    if _line.line() is not None:
        if is_communicator(comm):
            raise NotSupportedError("init(comm=...): the world of an elastic job is the launcher's; give None")
        if world.engine is None:
            _await([] if process_sets is None or isinstance(process_sets, str) else process_sets, num_lanes)
        return
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
    _stacks.watch()
    left = world.left
    told = _what_to_tell(None if isinstance(comm, Sequence) else comm)
    connected, is_behind = _join(num_lanes if left is None else left.num_lanes, told)
    if isinstance(comm, Sequence) and comm and sorted(comm) != list(range(connected.size)):
        size = connected.size
        connected.shutdown()
        raise NotSupportedError(
            f"init(comm={list(comm)}): a world of {size} ranks cannot be joined by some only; a "
            "communicator of mpi4py makes a world of its members"
        )
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


def _await(process_sets: Sequence[ProcessSet], num_lanes: int | None) -> None:
    """Note what the first world of this process is to have, which it joins later."""
    await_as(os.environ)
    world.wanted = _carried_sets.given(process_sets, num_lanes)
    _misspelt.warn()
    ending.watch()
    _stacks.watch()


def await_as(told: Mapping[str, str]) -> None:
    """Have the numbers of a rank outside any world, as these variables tell them."""
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    world.awaited = Numbers(*(int(told[f"CIRANDA_{name}"]) for name in names))


def leave_for_next() -> None:
    """Leave the world, if this process is in one, and note what the next one is to have."""
    if world.engine is not None:
        if world.members:  # it was complete
            world.wanted = _carried_sets.present(world.engine.num_lanes, world.members)
        world.members = ()
        _leave()
        for forget in between_worlds:
            forget()


def join(roster: Roster, is_lost: Callable[[], bool]) -> None:
    """Join the world of a roster, with the process sets of its rank 0. All of its members call this.

    Args:
        roster: of which this process is a member.
        is_lost: asked several times a second while this process waits for the others; True ends the wait.

    Raises:
        HorovodInternalError: no world comes of this roster.
    """
    _taken.require_free()
    wanted = world.wanted or _carried_sets.Wanted()
    if roster.epoch == 0:
        world.wanted = wanted = _carried_sets.with_members(wanted, roster.members)
    told = {**roster.told, **_timeline.of_world(roster.epoch)}
    connected = _core.connect(roster.epoch, wanted.num_lanes, told, None, is_lost)
    is_first = world.awaited is not None
    world.engine, world.awaited, world.epoch = connected, None, roster.epoch + 1
    _taken.tell(connected)
    for notice in at_first_world if is_first else ():
        notice()
    _carried_sets.make(wanted, roster.members)
    world.members = roster.members


def _find() -> bool:
    """Adopt the world that a binding in C has joined in this process, if there is one; return whether."""
    world.engine = _core.attach()
    if world.engine is not None:
        ending.watch()
        _stacks.watch()
        _taken.tell(world.engine)
    return world.engine is not None


def _begin(process_sets: Sequence[ProcessSet] | str | None) -> None:
    if process_sets and not isinstance(process_sets, str):
        for process_set in process_sets:
            if process_set.is_of_communicator:
                from ciranda import _sets_of_communicators  # with NumPy, which init() does without

                _sets_of_communicators.add(process_set)
            else:
                add_process_set(process_set)


def _is_list_of_ranks(comm: object) -> bool:
    return isinstance(comm, Sequence) and all(isinstance(rank, Integral) for rank in comm)


def _what_to_tell(comm: Communicator | None) -> dict[str, str]:
    """Return settings of the world from a communicator or another launcher's variables, if CIRANDA_ ones lack them."""
    if comm is not None and not (world.left is not None and world.told is not None):
        from ciranda.engines.communicator import by_communicator, is_described  # only with mpi4py

        if not is_described(comm, os.environ):
            meet_at(by_communicator(comm))
            return world.told or {}
    way = way_to_meet(os.environ, _size_of_group(), world.told is not None)
    if way is Way.ENGINE:
        if text := doubt(os.environ):
            warnings.warn(text, RuntimeWarning, stacklevel=3)
        return {}
    if way is Way.PADDLE:
        from ciranda.engines.endpoints import by_endpoints  # only under Paddle's launcher

        meet_at(by_endpoints(os.environ))
    elif way in (Way.FILE, Way.KEY_VALUES, Way.STEP):
        meet_at(_by_engine(way))
    elif way is not Way.AGAIN:
        try:
            from ciranda.torch.distributed import joining  # torch is optional
        except ImportError as error:
            raise InvalidArgumentError(
                f"WORLD_SIZE={os.environ['WORLD_SIZE']} says that there are several processes, which meet at a store "
                f"of torch.distributed, but torch cannot be imported ({error}): install it, or start them with "
                "'ciranda run'"
            ) from None
        meet_at(joining.by_group() if way is Way.GROUP else joining.by_variables())
    return world.told or {}


def _by_engine(way: Way) -> dict[str, str]:
    """Return settings of the world that an engine has started: through MPI, if it is there already."""
    found = identity(os.environ)
    assert found is not None
    if (comm := world_of_mpi(found.size)) is not None:
        from ciranda.engines.communicator import by_communicator  # only with mpi4py

        return by_communicator(comm, found.local_rank)
    if way in (Way.KEY_VALUES, Way.STEP):
        from ciranda.engines.key_values import by_key_values, is_reached  # only under mpiexec, srun --mpi=pmi2 or pmix

        if way is Way.KEY_VALUES or is_reached(os.environ):
            return by_key_values(os.environ)
    from ciranda.engines.handover import by_files  # only under srun and its like

    return by_files(os.environ)


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
    world.left = world.awaited = None
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


ending = Ending(shutdown)
