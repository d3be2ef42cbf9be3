"""Training that starts again from its last commit when a collective has failed. No framework is needed.

A *state* holds the values that must survive. The training function takes it as its first argument, and is wrapped by
`run_fn()` (for torch: `ciranda.torch.elastic.run`):

- before the function begins, all ranks receive rank 0's state;
- `state.commit()` keeps a copy of the state;
- if a collective fails on any rank, all ranks restore the last commit, form a new world, and call the function again.

Under `ciranda run --elastic` the world is formed as the function begins, not in `init()`; if a rank dies, the others
form one without it, and another process takes its place at a commit.
"""

from __future__ import annotations

import copy
import queue
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, Final, TypeVar

from ciranda import _line
from ciranda._hosts_updated import HostsUpdatedInterrupt
from ciranda._results import await_results, synchronize
from ciranda.errors import HorovodInternalError, InvalidArgumentError, MismatchError

__all__ = ["HostsUpdatedInterrupt", "ObjectState", "State", "run_fn"]

#: The argument of `State.on_hosts_updated()` if hosts were only removed.
HOSTS_REMOVED: Final = 1

Result = TypeVar("Result")


class State:
    """The state that survives a failure. A subclass has `save`, `restore` and `sync`.

    Args:
        bcast_object: broadcasts an object of rank 0 to every rank.
        get_rank: returns this process's rank.

    Attributes:
        n_commits: the number of commits of the job that this state contains.
    """

    n_commits: int = 0

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_updates: queue.SimpleQueue[tuple[float, int]] = queue.SimpleQueue()
        self._reset_callbacks: list[Callable[[], None]] = []

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], None]]) -> None:
        """Add functions that are called whenever a new world has been formed, for example to adapt a learning rate."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Adapt to a new world. Called after it has been formed."""
        self._drain()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Note that hosts were added (2), removed (1) or both (3). From any thread."""
        self._host_updates.put((timestamp, update_res))

    def on_too_few(self) -> None:
        """Save the state where it outlasts the job; for subclasses.

        Called under `ciranda run --elastic` on the ranks that are left, if they are fewer than `--min-np` and have
        waited for `--elastic-timeout`. They have a minute. No world is formed any more: `rank()` and `size()` are those
        that it would have; rank 0 has the newest commit.
        """

    def _drain(self) -> list[tuple[float, int]]:
        updates = []
        while True:
            try:
                updates.append(self._host_updates.get_nowait())
            except queue.Empty:
                return updates

    def commit(self) -> None:
        """Save the state, from which training continues after a failure; then `check_host_updates()`. A collective.

        It waits until the results of earlier calls are there, also on GPUs, and raises HorovodInternalError if one of
        them is lost: nothing that came of it is saved.
        """
        await_results()
        self.save()
        self.n_commits += 1
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raise HostsUpdatedInterrupt, on all ranks, if rank 0 has noted other hosts. A collective.

        Under `ciranda run --elastic`: if any rank has, or has been told that other ranks want to join.
        """
        line = _line.line()
        if line is not None:
            from ciranda._elastic_run import is_any  # loads the engine

            line.look()
            if is_any(bool(self._drain()) or line.is_invited):
                raise HostsUpdatedInterrupt(False)
            return
        updates = self._bcast_object([kind for _, kind in self._drain()])
        if updates:
            raise HostsUpdatedInterrupt(all(kind == HOSTS_REMOVED for kind in updates))

    def save(self) -> None:
        """Save the values."""
        raise NotImplementedError

    def restore(self) -> None:
        """Go back to what was saved last."""
        raise NotImplementedError

    def sync(self) -> None:
        """Broadcast the state of rank 0 to every rank."""
        raise NotImplementedError

    def reset(self) -> None:
        """Adapt to a new world; for subclasses."""

    def saved(self) -> Any:
        """Return what `save()` has kept, to which a `sync()` that fails halfway goes back; None if a class has none."""
        return None

    def set_saved(self, saved: Any) -> None:
        """Keep again what `saved()` has returned."""

    def release_saved(self) -> None:
        """What `saved()` has returned last is not needed any more."""


class ObjectState(State):
    """A state of Python objects: `ObjectState(bcast, rank, epoch=0)` has an attribute `epoch`.

    It must be possible to copy (`copy.deepcopy`) and pickle the objects.
    """

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        self._object_names = list(kwargs)
        self._saved_objects: dict[str, Any] = {}
        for name, value in kwargs.items():
            setattr(self, name, value)
        self.save()

    def _objects(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._object_names}

    def _set_objects(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)

    def _copied(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return copies of objects; a framework may override it."""
        return copy.deepcopy(values)

    def _of_rank_0(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the objects of rank 0; rank 0 keeps its own."""
        return self._bcast_object(values)  # type: ignore[no-any-return]

    def save(self) -> None:
        """Save a copy of every object."""
        self._saved_objects = self._copied(self._objects())

    def restore(self) -> None:
        """Go back to what was saved last."""
        self._set_objects(self._copied(self._saved_objects))

    def saved(self) -> Any:
        """Return the saved objects, which the next `save()` replaces and does not change."""
        return self._saved_objects

    def set_saved(self, saved: Any) -> None:
        """Keep these saved objects again."""
        self._saved_objects = saved

    def sync(self) -> None:
        """Broadcast the objects of rank 0 to every rank, and save them."""
        if self._object_names:
            values = self._of_rank_0(self._objects())
            if self._rank() != 0:
                self._set_objects(values)
        ObjectState.save(self)


def run_fn(
    func: Callable[..., Result],
    reset: Callable[[], None],
    converting: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Callable[..., Result]:
    """Return `func`; it is called again from the last commit after a collective has failed.

    The errors of disagreements and invalid calls (MismatchError, InvalidArgumentError) are not caught: the script would
    fail again in the same way.

    Args:
        func: the training function; its first argument is the state.
        reset: leaves the world and forms a new one. Not called under `ciranda run --elastic`, which tells the ranks of
            each world.
        converting: a context that turns a framework's exceptions into those of `ciranda.errors`.
    """

    @wraps(func)
    def run(state: State, *args: Any, **kwargs: Any) -> Result:
        line = _line.line()
        if line is not None:
            from ciranda._elastic_run import Training  # loads the engine

            return Training(line, state, converting).run(func, args, kwargs)  # type: ignore[no-any-return]
        needs_sync = True
        while True:
            try:
                with converting():
                    if needs_sync:
                        synchronize(state)
                    result = func(state, *args, **kwargs)
                    await_results()
                    return result
            except (MismatchError, InvalidArgumentError):
                raise
            except HorovodInternalError:
                state.restore()
                needs_sync = True
            except HostsUpdatedInterrupt as update:
                needs_sync = not update.skip_sync
            reset()
            state.on_reset()

    return run
