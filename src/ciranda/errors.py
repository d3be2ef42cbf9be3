"""What can go wrong, sorted by what you can do about it.

Every class is also a subclass of what Horovod scripts catch: calls that are wrong are `ValueError`; failures of a
collective are `HorovodInternalError`, which is a `RuntimeError`. Each message names the operation, the tensor and the
ranks concerned.
"""

import builtins

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


class CirandaError(Exception):
    """The base of everything that Ciranda raises."""


class HorovodInternalError(RuntimeError):
    """A collective failed. The name is Horovod's, whose scripts catch it."""


class InvalidArgumentError(CirandaError, ValueError):
    """This call is wrong, whatever the other ranks do: fix the call."""


class NotInitializedError(InvalidArgumentError):
    """`init()` has not been called, or `shutdown()` has been."""


class NotSupportedError(InvalidArgumentError, NotImplementedError):
    """The interface has this, Ciranda does not have it yet."""


class ScalarError(InvalidArgumentError, HorovodInternalError):
    """A scalar was given to what joins or cuts tensors along their first dimension.

    It is both: this call is wrong, but scripts written for Horovod catch a failed collective here.
    """


class MismatchError(CirandaError, HorovodInternalError):
    """The ranks disagree about one tensor: fix the script. The engine goes on working."""


class RanksLostError(CirandaError, HorovodInternalError):
    """Another rank died: the world has to be built anew."""


class TimeoutError(CirandaError, HorovodInternalError, builtins.TimeoutError):
    """A rank never came, or did not answer in time."""


class AbortedError(CirandaError, HorovodInternalError):
    """The world was shut down, here or on another rank."""


class InternalError(CirandaError, HorovodInternalError):
    """A bug in Ciranda, or the operating system refused something that it should grant."""
