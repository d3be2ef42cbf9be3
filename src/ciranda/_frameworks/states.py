"""States of an elastic training: how each kind of value is saved, restored and synchronized."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from ciranda import _basics
from ciranda._frameworks.objects import allgather_object, broadcast_object
from ciranda.elastic import ObjectState


class StateHandler:
    """Saves, restores and synchronizes one value of a state. A subclass has `save`, `restore` and `sync`.

    What `save()` keeps are attributes, which it assigns anew and does not change in place: if it fails, or a
    synchronization fails halfway, they are set to what they were.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Save the value."""
        raise NotImplementedError

    def restore(self) -> None:
        """Restore the value that was saved last."""
        raise NotImplementedError

    def sync(self) -> None:
        """Synchronize the value over all ranks, and save it. A collective."""
        raise NotImplementedError

    def reset(self) -> None:
        """Adapt the value to a new world, which may have other ranks. Not a collective."""

    def keep(self) -> None:
        """Let no later `save()` change what is saved now. For handlers that use the memory of older copies again."""

    def release(self) -> None:
        """Let later saves change again what `keep()` has protected."""

    def set_value(self, value: Any) -> None:
        """Replace the value, and save the new one."""
        self.value = value
        self.save()


class StateDictHandler(StateHandler):
    """For objects with state_dict() and load_state_dict()."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(copy.deepcopy(self._saved))


class SamplerStateHandler(StateDictHandler):
    """For an elastic sampler of any framework."""

    def __init__(self, sampler: Any) -> None:
        super().__init__(sampler)

    def sync(self) -> None:
        """Continue at rank 0's position. Samples that were recorded one by one, on any rank, are left out."""
        everyones = allgather_object(self.value.state_dict())
        state = everyones[0]
        recorded = [each.get("processed_indices", ()) for each in everyones if each["epoch"] == state["epoch"]]
        self.value.load_state_dict({**state, "processed_indices": set().union(*recorded)})
        self.save()

    def reset(self) -> None:
        """Divide the remaining samples again."""
        self.value.reset()


class HandledState(ObjectState):
    """A state of values that have handlers, and of plain objects. All are attributes.

    Args:
        registry: pairs of a type and the handler for its values; the first that matches is used.
        fixed: values that need not have a handler, and are then not saved.
        kwargs: further ones; without a handler, they are objects that can be copied and pickled.
    """

    def __init__(
        self, registry: Sequence[tuple[type, type[StateHandler]]], fixed: dict[str, Any], kwargs: dict[str, Any]
    ) -> None:
        values = {**fixed, **kwargs}
        self._handlers: dict[str, StateHandler] = {}
        handlers = _handlers_for(registry, values)
        plain = {name: value for name, value in kwargs.items() if name not in handlers}
        for name in (*fixed, *handlers):
            object.__setattr__(self, name, values[name])
        self._handlers = handlers
        super().__init__(lambda value: broadcast_object(value, root_rank=0), _basics.rank, **plain)

    def __setattr__(self, name: str, value: Any) -> None:
        handler = vars(self).get("_handlers", {}).get(name)
        if handler is not None:
            handler.set_value(value)
        super().__setattr__(name, value)

    def save(self) -> None:
        """Save all values; if that fails, what was saved before stays."""
        before = self._attributes()
        try:
            for handler in self._handlers.values():
                handler.save()
            super().save()
        except BaseException:
            self._set_attributes(before)
            raise

    def restore(self) -> None:
        """Go back to what was saved last."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def reset(self) -> None:
        """Adapt to a new world: samplers divide the remaining samples again."""
        for handler in self._handlers.values():
            handler.reset()

    def saved(self) -> Any:
        """Return what all handlers have saved, and the saved objects."""
        for handler in self._handlers.values():
            handler.keep()
        return self._attributes(), super().saved()

    def set_saved(self, saved: Any) -> None:
        """Have the handlers keep it again."""
        of_handlers, of_objects = saved
        self._set_attributes(of_handlers)
        super().set_saved(of_objects)

    def release_saved(self) -> None:
        """Let the handlers use its memory again."""
        for handler in self._handlers.values():
            handler.release()

    def _attributes(self) -> dict[str, dict[str, Any]]:
        """What each handler has saved."""
        handlers = self._handlers.items()
        return {name: {key: each for key, each in vars(one).items() if key != "value"} for name, one in handlers}

    def _set_attributes(self, of_handlers: dict[str, dict[str, Any]]) -> None:
        for name, attributes in of_handlers.items():
            vars(self._handlers[name]).update(attributes)

    def sync(self) -> None:
        """Broadcast rank 0's values to every rank; of samplers, merge the progress of all ranks. A collective."""
        for name in sorted(self._handlers):
            self._handlers[name].sync()
        super().sync()


def _handlers_for(
    registry: Sequence[tuple[type, type[StateHandler]]], values: dict[str, Any]
) -> dict[str, StateHandler]:
    found = {}
    for name, value in values.items():
        for kind, handler in registry:
            if isinstance(value, kind):
                found[name] = handler(value)
                break
    return found
