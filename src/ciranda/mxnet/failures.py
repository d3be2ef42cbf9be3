"""The errors of operations of MXNet's engine: exceptions that are both MXNet's and those of `ciranda.errors`."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import mxnet as mx
from mxnet.base import MXNetError, register_error
from mxnet.ndarray import NDArray

from ciranda import errors
from ciranda._frameworks.error_classes import OF_STATUS
from ciranda.mxnet._plugin import failure_of, last_failure, note_failure, note_raised

Function = TypeVar("Function", bound=Callable[..., Any])


class MXNetCollectiveError(MXNetError):  # type: ignore[misc]
    """A collective has failed in MXNet's engine: raised where MXNet raises, by the wait for an array.

    Each is also an error of `ciranda.errors`, by what the caller can do.
    """

    _kind: type[errors.CirandaError]

    def __init__(self, message: str) -> None:
        _failures.any = True
        word, _, said = message.partition(": ")
        super().__init__(said if word in _MADE else message)

    @property
    def text(self) -> str:
        """The message as the plugin sends it."""
        return f"{_word(self._kind)}: {self}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._kind, str(self))


class _Failures:
    """Whether any call has failed. Until then reads need no extra check."""

    any = False


_failures = _Failures()


def _reading(own: Callable[[NDArray], Any]) -> Callable[[NDArray], Any]:
    """Return a method that reads an array, and raises its error each time: MXNet itself raises an error once."""

    @wraps(own)
    def read(self: NDArray) -> Any:
        try:
            result = own(self)
        except MXNetCollectiveError as error:
            note_raised(self, error.text)
            raise
        if _failures.any:
            _raise_again(self)
        return result

    return read


def _waiting(own: Callable[[], None]) -> Callable[[], None]:
    """Return a function that waits for all arrays, and raises one of their errors."""

    @wraps(own)
    def waitall() -> None:
        try:
            own()
        except MXNetCollectiveError:
            note_raised()
            raise

    return waitall


def _raise_again(array: NDArray) -> None:
    if message := failure_of(array):
        raise of_message(message)


for _name in ("asnumpy", "wait_to_read"):
    setattr(NDArray, _name, _reading(getattr(NDArray, _name)))
for _module in (mx.nd, mx.nd.ndarray, mx.npx):
    _module.waitall = _waiting(_module.waitall)


_by_kind: dict[type[errors.CirandaError], type[MXNetCollectiveError]] = {}


def _make(kind: type[errors.CirandaError]) -> type[MXNetCollectiveError]:
    """Return the class that is both `kind` and an MXNetError."""
    if kind in _by_kind:
        return _by_kind[kind]
    members = {"__doc__": kind.__doc__, "__module__": __name__, "_kind": kind}
    made = _by_kind[kind] = type(kind.__name__, (MXNetCollectiveError, kind), members)
    if kind in OF_STATUS:
        # MXNet finds the class by the word before a message's first colon: cpp/bindings/mxnet/tables.hpp.
        register_error(_word(kind), made)
    return made


def _again(kind: type[errors.CirandaError], message: str) -> MXNetCollectiveError:
    return _make(kind)(message)


def _word(kind: type[errors.CirandaError]) -> str:
    return "Ciranda" + kind.__name__.removesuffix("Error")


_MADE = {_word(kind): _make(kind) for kind in OF_STATUS}
_MESSAGE = re.compile(rf"\b({'|'.join(_MADE)}): (.*)", re.DOTALL)


def of_message(text: str) -> MXNetCollectiveError:
    """Return the exception that MXNet raises for a message of the plugin."""
    found = _MESSAGE.search(text)
    return _MADE[found[1]](text) if found else MXNetCollectiveError(text)


def raises_mxnet_errors(function: Function) -> Function:
    """Return `function` with errors that are MXNetErrors as well as those of `ciranda.errors`."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except errors.CirandaError as error:
            if isinstance(error, MXNetError):
                raise
            if type(error) in OF_STATUS and isinstance(error, errors.HorovodInternalError):
                _note(error)
            raise _make(type(error))(str(error)).with_traceback(error.__traceback__) from None

    return cast(Function, call)


def _note(error: errors.CirandaError) -> None:
    note_failure(OF_STATUS.index(type(error)) + 1, str(error))


def last_error() -> errors.CirandaError | None:
    """Return the error of the collective that failed last, as one of `ciranda.errors`; None if none has failed.

    MXNet's engine passes an error on to all arrays that are computed from failed ones, and raises it once, at the first
    wait for one of them. This returns it afterwards.
    """
    status, message = last_failure()
    return OF_STATUS[status - 1](message) if 1 <= status <= len(OF_STATUS) else None


def as_ciranda_error(error: BaseException) -> errors.CirandaError | None:
    """Return the error of `ciranda.errors` for an exception; None if it is not a collective's."""
    if isinstance(error, errors.CirandaError):
        return error
    found = _MESSAGE.search(str(error)) if isinstance(error, MXNetError) else None
    return OF_STATUS[list(_MADE).index(found[1])](found[2]) if found else None
