"""The circle that this process belongs to: joining, leaving, and who one is in it."""

from __future__ import annotations

import atexit
import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ciranda import _core
from ciranda.errors import InvalidArgumentError, NotInitializedError, NotSupportedError

if TYPE_CHECKING:
    from ciranda.process_sets import ProcessSet

_NOT_INITIALIZED = "Ciranda has not been initialized; call init() first."


class Circle:
    """The engine of this process, and how many circles the process has joined so far."""

    engine: _core.Engine | None = None
    epoch: int = 0


#: Called when the circle ends, by whoever keeps something that belongs to it.
at_end: list[Callable[[], None]] = []

#: Read directly where a call must be cheap; `engine()` is the safe way.
circle = Circle()


def engine() -> _core.Engine:
    """Return the connected engine. Raises NotInitializedError (a ValueError) without one."""
    if circle.engine is None:
        raise NotInitializedError(_NOT_INITIALIZED)
    return circle.engine


def init(
    comm: Sequence[int] | None = None,
    process_sets: Sequence[ProcessSet] | str | None = None,
    num_lanes: int | None = None,
) -> None:
    """Join the circle that the environment describes; without one, be a circle of one.

    Returns when every rank has come. Does nothing if this process is in a circle already. May be called again after
    `shutdown()`, by all ranks alike.

    Args:
        comm: None, or the list of all ranks. Anything else is refused.
        process_sets: process sets to add at once, the same on all ranks. "dynamic", which Horovod needs before sets can
            be added later, is accepted and changes nothing: they always can.
        num_lanes: how many lanes each process set has (see `ProcessSet.lane()`), the same on all ranks. By default what
            CIRANDA_NUM_LANES says, or 1.

    Raises:
        InvalidArgumentError: an environment variable does not parse, or an argument is refused; or this process is in a
            circle already, with another number of lanes than `num_lanes`.
        MismatchError: the ranks give different numbers of lanes.
        TimeoutError: a rank did not come within CIRANDA_START_TIMEOUT_SECONDS; the message names it.
    """
    if isinstance(process_sets, str) and process_sets != "dynamic":
        raise InvalidArgumentError(f'init(process_sets={process_sets!r}): give a list of sets, or "dynamic"')
    if comm is not None and not isinstance(comm, Sequence):
        raise NotSupportedError("init(comm=...): MPI communicators are not supported; give None")
    if circle.engine is not None:
        if num_lanes not in (None, circle.engine.num_lanes):
            raise InvalidArgumentError(
                f"init(num_lanes={num_lanes}): this process is in a circle already, which has "
                f"{circle.engine.num_lanes}; call shutdown() first"
            )
        return
    connected = _core.connect(circle.epoch, num_lanes)
    circle.epoch += 1
    if comm and sorted(comm) != list(range(connected.size)):
        size = connected.size
        connected.shutdown()
        raise NotSupportedError(f"init(comm={list(comm)}): a circle of {size} ranks cannot be joined by some only")
    circle.engine = connected
    _record_timeline()
    if process_sets and not isinstance(process_sets, str):
        from ciranda.process_sets import add_process_set  # which needs this module

        for process_set in process_sets:
            add_process_set(process_set)


def _record_timeline() -> None:
    """Start the timeline that the settings ask for. DYNAMIC is how scripts for Horovod say that they start it later."""
    settings = _core.effective_settings()
    path = str(settings["CIRANDA_TIMELINE"])
    if path not in ("", "DYNAMIC"):
        from ciranda._timeline import start_timeline  # which needs this module

        start_timeline(path, bool(settings["CIRANDA_TIMELINE_MARK_CYCLES"]))


def shutdown() -> None:
    """Leave the circle. What is pending here fails with AbortedError, as does what other ranks need us for.

    Does nothing without a circle. Called at exit.
    """
    connected, circle.engine = circle.engine, None
    for forget in at_end:
        forget()
    if connected is not None:
        connected.shutdown()


def is_initialized() -> bool:
    """Whether this process is in a circle."""
    return circle.engine is not None


def rank() -> int:
    """This process's number among all, from 0 to size() - 1."""
    return engine().rank


def size() -> int:
    """The number of processes in the circle."""
    return engine().size


def local_rank() -> int:
    """This process's number among those on its host."""
    return engine().local_rank


def local_size() -> int:
    """The number of processes on this host."""
    return engine().local_size


def cross_rank() -> int:
    """The number of this process's host, among the hosts that have a process with its local rank."""
    return engine().cross_rank


def cross_size() -> int:
    """The number of hosts that have a process with this process's local rank."""
    return engine().cross_size


def is_homogeneous() -> bool:
    """Whether every host has the same number of processes."""
    connected = engine()
    per_host = Counter(connected.peer(number)["host"] for number in range(connected.size))
    return len(set(per_host.values())) == 1


def peers() -> list[_core.PeerRow]:
    """Every rank of the circle: rank, pid, host, address, and whether it shares memory with this one."""
    connected = engine()
    return [connected.peer(number) for number in range(connected.size)]


def require_rank(root_rank: int) -> None:
    """Raise InvalidArgumentError unless `root_rank` is a rank of the circle."""
    if not 0 <= root_rank < size():
        raise InvalidArgumentError(f"root_rank {root_rank} is not a rank: there are {size()} ranks, from 0")


def _forget_after_fork() -> None:
    """In a forked child: the circle is the parent's, and the child must neither use nor close it."""
    connected, circle.engine = circle.engine, None
    if connected is not None:
        connected.abandon()


atexit.register(shutdown)
os.register_at_fork(after_in_child=_forget_after_fork)
