"""Results that an elastic state may keep: those that are there. Calls by NCCL return before their results are."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ciranda.elastic import State


def await_results() -> None:
    """Return when the results of all calls of this rank are there; raise HorovodInternalError if one has none."""
    from ciranda import _basics  # loads the engine

    engine = _basics.world.engine
    if engine is not None and engine.is_open:
        engine.await_results()


def synchronize(state: State) -> None:
    """Receive rank 0's state; if that fails halfway, what `state` had saved before is saved again."""
    saved = state.saved()
    try:
        state.sync()
        await_results()
    except BaseException:
        state.set_saved(saved)
        raise
    state.release_saved()
