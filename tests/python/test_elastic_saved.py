"""A synchronization that fails halfway leaves what each rank had committed itself."""

from __future__ import annotations

from typing import Any

from ciranda._frameworks.states import HandledState, StateHandler


class Value:
    """Something that has a handler."""

    def __init__(self, content: str) -> None:
        self.content = content


class Handler(StateHandler):
    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        self._saved = self.value.content

    def restore(self) -> None:
        self.value.content = self._saved

    def sync(self) -> None:
        self.value.content = "the root's"
        self.save()


def test_handlers_and_objects_go_back_to_the_commit_before_the_synchronization() -> None:
    state: Any = HandledState([(Value, Handler)], {}, {"model": Value("mine"), "step": 3})
    saved = state.saved()
    state._handlers["model"].sync()  # and then another rank is lost, before the objects are synchronized
    state.step = 4
    state._saved_objects = {"step": 4}
    state.set_saved(saved)
    state.restore()
    assert (state.model.content, state.step) == ("mine", 3)
