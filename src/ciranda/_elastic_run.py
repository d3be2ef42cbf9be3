"""Training under `ciranda run --elastic`: this rank enters one world after another until training has ended on all.

A world is formed by all ranks that stand here, with their states built. A failed collective breaks it: its ranks
restore their last commits, report how many they have made, and wait for the next world, whose rank 0 has the newest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from ciranda import _basics, _init
from ciranda._hosts_updated import HostsUpdatedInterrupt
from ciranda._line import Line, Roster
from ciranda._ops import ALLGATHER, terms_of
from ciranda._results import await_results, synchronize
from ciranda.errors import AbortedError, HorovodInternalError, InvalidArgumentError, MismatchError, TimeoutError

if TYPE_CHECKING:
    from ciranda.elastic import State

_NONE = -1  # the commits of a process without a state of its own


def is_any(flag: bool, name: str = "ciranda.elastic.news") -> bool:
    """Return whether any rank gives True. A collective."""
    import numpy as np  # states do without, unless they are synchronized

    (flags,) = _basics.engine().run(terms_of(ALLGATHER), np.array([flag], np.uint8), None, name)
    return bool(flags.any())


class Training:
    """One call of the training function, which may be made several times.

    Args:
        line: to the agent.
        state: what survives.
        converting: a context that turns a framework's exceptions into those of `ciranda.errors`.
    """

    def __init__(self, line: Line, state: State, converting: Callable[[], AbstractContextManager[None]]) -> None:
        self._line = line
        self._state = state
        self._converting = converting
        self._has_state = False
        if line.is_released:
            raise InvalidArgumentError(
                "training has ended on all ranks of this elastic job, and begins once only: call the functions that "
                "follow one another from one that elastic.run wraps"
            )

    def run(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call `func(state, ...)`, again after each failure; return its result when it has returned on all ranks."""
        _init.leave_for_next()
        roster = self._wait(has_waited=False)
        while True:
            try:
                with self._converting():
                    self._enter(roster)
                    result = func(self._state, *args, **kwargs)
                    await_results()
            except (MismatchError, InvalidArgumentError):
                raise
            except HorovodInternalError as error:
                self._state.restore()
                has_waited = isinstance(error, TimeoutError)
            except HostsUpdatedInterrupt:
                has_waited = False
            else:
                others = self._return()
                if others is None:
                    return result
                roster = others
                continue
            _init.leave_for_next()  # here, where no traceback keeps what `func` had made for the world
            roster = self._wait(has_waited)

    def _wait(self, has_waited: bool) -> Roster:
        commits = self._state.n_commits if self._has_state else _NONE
        self._line.say(t="ready", commits=commits, waited=has_waited)
        roster = self._next()
        if roster is None:
            raise InvalidArgumentError("training has ended on the other ranks")  # the launcher ends this one
        return roster

    def _next(self) -> Roster | None:
        """Wait for the next roster; None if training has ended on all ranks."""
        roster = self._line.wait()
        if self._line.given_up:
            if self._has_state:
                _init.await_as(self._line.told_last)
                self._state.on_too_few()
            raise AbortedError(f"training is given up: {self._line.given_up}")
        return roster

    def _enter(self, roster: Roster) -> None:
        """Form the world, and get the state of its rank 0."""
        before = _basics.world.awaited
        _init.join(roster, lambda: self._line.is_lost(roster.epoch))
        # All do, or none, newcomers too: callbacks may have collectives.
        if roster.epoch > 0 or is_any(before != _basics.numbers_of(_basics.engine()), "ciranda.elastic.numbers"):
            self._state.on_reset()
        if roster.needs_sync:
            self._sync(roster)
        self._state.n_commits = max(0, roster.commits)
        self._has_state = True

    def _sync(self, roster: Roster) -> None:
        """Synchronize; if that fails halfway, the state goes back to what this rank had committed itself.

        A newcomer whose state does not fit fails by the MismatchError; the others leave it and go on.
        """
        try:
            synchronize(self._state)
        except BaseException as error:
            is_old = roster.members[_basics.rank()] not in roster.newcomers
            if isinstance(error, MismatchError) and roster.newcomers and is_old:
                raise AbortedError(f"a process that was to join has another state: {error}") from error
            raise

    def _return(self) -> Roster | None:
        """Wait for the others to return; a roster if one of them was lost, for which training must be called again.

        Raises:
            MismatchError: on all ranks; some wait for calls of others, which have returned and make none.
        """
        self._line.say(t="returned", commits=self._state.n_commits + 1)
        try:
            is_any(False, "ciranda.elastic.returned")  # the engine knows at once if all wait for each other
        except MismatchError:
            raise
        except HorovodInternalError:
            pass  # a rank was lost, or takes long: the launcher says when all have returned
        roster = self._next()
        if roster is not None:
            self._state.save()
            self._state.n_commits += 1
            _init.leave_for_next()
        return roster
