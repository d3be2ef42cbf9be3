"""What operations of MXNet's engine fail with: exceptions that are both MXNet's and those of `ciranda.errors`."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from mxnet.base import MXNetError, register_error
from mxnet.ndarray import NDArray

from ciranda import errors

# In the order of the engine's status codes, from 1.
_KINDS: tuple[type[errors.CirandaError], ...] = (
    errors.InvalidArgumentError,
    errors.MismatchError,
    errors.RanksLostError,
    errors.TimeoutError,
    errors.AbortedError,
    errors.InternalError,
)


Function = TypeVar("Function", bound=Callable[..., Any])


class MXNetCollectiveError(MXNetError):  # type: ignore[misc]
    """A collective has failed in MXNet's engine: raised where MXNet raises, when an array is waited for.

    Each is also the error of `ciranda.errors` that says what can be done about it.
    """

    _kind: type[errors.CirandaError]

    def __init__(self, message: str) -> None:
        _raise_again()
        word, _, said = message.partition(": ")
        super().__init__(said if word in _MADE else message)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._kind, str(self))


def _raise_again() -> None:
    """From now on have arrays that have failed raise whenever they are read: MXNet itself raises an error once.

    Done when the first is raised, so that reading takes no longer where nothing has failed.
    """
    for name in ("asnumpy", "wait_to_read"):
        own = getattr(NDArray, name)
        if not hasattr(own, _IS_WRAPPED):
            setattr(NDArray, name, _checked(own))


def _checked(own: Callable[[NDArray], Any]) -> Callable[[NDArray], Any]:
    @wraps(own)
    def read(self: NDArray) -> Any:
        result = own(self)
        from ciranda.mxnet._plugin import failure_of  # which needs this module

        if message := failure_of(self):
            raise of_message(message)
        return result

    setattr(read, _IS_WRAPPED, True)
    return read


_IS_WRAPPED = "_ciranda_raises_again"
_by_kind: dict[type[errors.CirandaError], type[MXNetCollectiveError]] = {}


def _make(kind: type[errors.CirandaError]) -> type[MXNetCollectiveError]:
    """Return the class that is both `kind` and an MXNetError."""
    if kind in _by_kind:
        return _by_kind[kind]
    members = {"__doc__": kind.__doc__, "__module__": __name__, "_kind": kind}
    made = _by_kind[kind] = type(kind.__name__, (MXNetCollectiveError, kind), members)
    if kind in _KINDS:
        # MXNet looks for the word before the first colon of a message: cpp/bindings/mxnet/tables.hpp.
        register_error(_word(kind), made)
    return made


def _again(kind: type[errors.CirandaError], message: str) -> MXNetCollectiveError:
    return _make(kind)(message)


def _word(kind: type[errors.CirandaError]) -> str:
    return "Ciranda" + kind.__name__.removesuffix("Error")


_MADE = {_word(kind): _make(kind) for kind in _KINDS}
_MESSAGE = re.compile(rf"\b({'|'.join(_MADE)}): (.*)", re.DOTALL)


def of_message(text: str) -> MXNetCollectiveError:
    """Return the exception that MXNet makes of a message of the native part."""
    found = _MESSAGE.search(text)
    return _MADE[found[1]](text) if found else MXNetCollectiveError(text)


def raises_mxnet_errors(function: Function) -> Function:
    """Return `function`, whose errors of `ciranda.errors` are MXNetErrors as well, which users of MXNet catch."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except errors.CirandaError as error:
            if isinstance(error, MXNetError):
                raise
            if type(error) in _KINDS and isinstance(error, errors.HorovodInternalError):
                _note(error)
            raise _make(type(error))(str(error)).with_traceback(error.__traceback__) from None

    return cast(Function, call)


def _note(error: errors.CirandaError) -> None:
    from ciranda.mxnet._plugin import note_failure  # which needs this module

    note_failure(_KINDS.index(type(error)) + 1, str(error))


def last_error() -> errors.CirandaError | None:
    """Return what the collective that failed last has failed with, as one of `ciranda.errors`; None if none has.

    MXNet's engine hands an error on to all arrays that are made of those that have failed, and raises it once, at the
    first wait for one of them. This says afterwards what it was.
    """
    from ciranda.mxnet._plugin import last_failure  # which needs this module

    status, message = last_failure()
    return _KINDS[status - 1](message) if 1 <= status <= len(_KINDS) else None


def as_ciranda_error(error: BaseException) -> errors.CirandaError | None:
    """Return the error of `ciranda.errors` that an exception stands for; None if it is not a collective's."""
    if isinstance(error, errors.CirandaError):
        return error
    found = _MESSAGE.search(str(error)) if isinstance(error, MXNetError) else None
    return _KINDS[list(_MADE).index(found[1])](found[2]) if found else None
