"""Names in use, by Horovod's rule: from an asynchronous call until its handle was waited for, or found done by `poll`.

Ciranda's own functions refuse a name while its first use is under way, which the second call often comes too late for.
Here it is certain: the same program is refused in every run, on every rank. As with Horovod, the first use goes on, and
`init()` and `shutdown()` end all uses.

Who drops a handle can neither wait nor poll: such a name is free after the next wait for another call.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, cast

from ciranda._basics import world
from ciranda._ops import Handle
from ciranda.errors import InvalidArgumentError
from ciranda.process_sets import ProcessSet, global_process_set

#: A collective, a process set's number, a name, and how often this process had called init().
_Use = tuple[str, int | None, str, int]


class _Uses:
    """The uses that have not ended. One thread at a time changes them: each step is one of dict or list."""

    def __init__(self) -> None:
        self._handles: dict[_Use, weakref.ref[HeldHandle]] = {}
        self._dropped: list[tuple[_Use, weakref.ref[HeldHandle]]] = []

    def check(self, use: _Use) -> None:
        if use in self._handles:
            collective, _, name, _ = use
            raise InvalidArgumentError(
                f"Duplicate name {name!r} in {collective} on rank {world.engine.rank if world.engine else '?'}: the "
                "handle of its first use was not waited for. Call synchronize(handle), or poll(handle) until it is "
                "True, before the name is used again; or give each call its own name."
            )

    def begin(self, use: _Use, handle: HeldHandle) -> None:
        self._handles[use] = weakref.ref(handle, partial(self._drop, use))

    def _drop(self, use: _Use, handle: weakref.ref[HeldHandle]) -> None:
        self._dropped.append((use, handle))

    def end(self, use: _Use | None = None) -> None:
        """A call was waited for: that of `use`, if it had a handle."""
        if use is not None:
            self._handles.pop(use, None)
        while self._dropped:
            dropped, handle = self._dropped.pop()
            if self._handles.get(dropped) is handle:  # not where another has taken its place
                del self._handles[dropped]


_uses = _Uses()


class HeldHandle(Handle[Any]):
    """A handle whose name is in use until it was waited for."""

    __slots__ = ("__weakref__", "_handle", "_use")

    def __init__(self, handle: Any, use: _Use) -> None:
        self._handle = handle
        self._use = use
        _uses.begin(use, self)

    def poll(self) -> bool:
        """Whether the operation is done. Never blocks."""
        is_done = bool(self._handle.poll())
        if is_done:
            _uses.end(self._use)
        return is_done

    def wait(self) -> Any:
        """Wait until the operation is done; return its result or raise its error. Ctrl-C interrupts the wait."""
        try:
            return self._handle.wait()
        finally:
            self.poll()

    def __call__(self) -> Any:
        """As `wait()`: with Horovod, what a sparse allreduce returns is called."""
        return self.wait()

    def then(self, change: Callable[[Any], Any]) -> Handle[Any]:
        """Return a handle of the same operation whose result is `change` of this one's."""
        return HeldHandle(self._handle.then(change), self._use)


def holding_name(function: Any) -> Any:
    """Return `function`, one of Ciranda's, refusing a name in use. The handle, where it returns one, holds the name."""
    parameters = list(inspect.signature(function).parameters)
    place_of_name, place_of_set = parameters.index("name"), parameters.index("process_set")
    collective = function.__name__.rstrip("_").removesuffix("_async")
    is_async = "_async" in function.__name__

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        name = args[place_of_name] if len(args) > place_of_name else kwargs.get("name")
        use = None
        if isinstance(name, str):
            process_set = args[place_of_set] if len(args) > place_of_set else kwargs.get("process_set")
            use = (collective, _number_of(process_set), name, world.n_inits)
            _uses.check(use)
        result = function(*args, **kwargs)
        if is_async and use is not None:
            return HeldHandle(result, use)
        if not is_async:
            _uses.end()
        return result

    call.__module__ = function.__module__
    return cast(Any, call)


def _number_of(process_set: ProcessSet | None) -> int | None:
    return (process_set or global_process_set).process_set_id
