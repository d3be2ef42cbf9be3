"""The errors, sorted by what the caller can do.

Every class is also a subclass of the class that Horovod scripts catch: invalid calls are `ValueError`; failures of a
collective are `HorovodInternalError`, which is a `RuntimeError`. Each message names the operation, the tensor and the
ranks concerned.
"""

import builtins
import re
import sys

__all__ = [
    "AbortedError",
    "CirandaError",
    "HorovodInternalError",
    "InternalError",
    "InvalidArgumentError",
    "MismatchError",
    "NotInitializedError",
    "NotSupportedError",
    "RanksLostError",
    "ScalarError",
    "TimeoutError",
]


_LOST_RANK = re.compile(r"\brank (\d+) \(host ")


class CirandaError(Exception):
    """The base of all errors that Ciranda raises."""


class HorovodInternalError(RuntimeError):
    """A collective failed. The name is Horovod's, whose scripts catch it."""


class InvalidArgumentError(CirandaError, ValueError):
    """The call is invalid, whatever the other ranks do: fix the call."""


class NotInitializedError(InvalidArgumentError):
    """`init()` has not been called, or `shutdown()` has been."""


class NotSupportedError(InvalidArgumentError, NotImplementedError):
    """The interface has the function, but Ciranda does not implement it."""


class ScalarError(InvalidArgumentError, HorovodInternalError):
    """A scalar was given to a collective that joins or splits tensors along their first dimension.

    It has both base classes: the call is invalid, but scripts written for Horovod catch a failed collective here.
    """


class MismatchError(CirandaError, HorovodInternalError):
    """The ranks disagree about one tensor: fix the script. The engine continues to work."""


class RanksLostError(CirandaError, HorovodInternalError):
    """Another rank died: form a new world.

    Attributes:
        ranks: those that the message names.
        epoch: the number of the world that has lost them, from 0; None outside any.
    """

    ranks: tuple[int, ...]
    epoch: int | None

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.ranks = tuple(sorted({int(number) for number in _LOST_RANK.findall(str(self))}))
        basics = sys.modules.get("ciranda._basics")  # which imports this module
        self.epoch = basics.world.epoch - 1 if basics is not None and basics.world.epoch > 0 else None


class TimeoutError(CirandaError, HorovodInternalError, builtins.TimeoutError):
    """A rank did not start, call or answer in time."""


class AbortedError(CirandaError, HorovodInternalError):
    """The world was shut down, here or on another rank."""


class InternalError(CirandaError, HorovodInternalError):
    """A bug in Ciranda, or the operating system refused a valid request."""
