"""Collectives as operations of MXNet's engine."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from ciranda import _basics
from ciranda.errors import InternalError, InvalidArgumentError
from ciranda.mxnet._plugin import MESSAGE_BYTES, buffer, library
from ciranda.mxnet.failures import of_message

_push = library.ciranda_mxnet_push


def push(
    collective: int,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    name: str,
    process_set: int,
    *,
    op: int = 0,
    root: int = -1,
    prescale: float = 1.0,
    postscale: float = 1.0,
    divides_by_all: bool = False,
    priority: int = 0,
    carrier: Any = None,
    is_chained: bool = False,
) -> None:
    """Push a collective to MXNet's engine, which runs it when `inputs` are ready and `outputs` may be written.

    Returns at once, except with MXNet's NaiveEngine. An array that is both input and output is reduced in place.

    Args:
        collective: one whose outputs' shapes are known beforehand.
        inputs: arrays of MXNet.
        outputs: the same number of arrays.
        name: the same on all ranks.
        process_set: the number from `id_of()`.
        op: of a reduction.
        root: of a broadcast.
        prescale: multiplies inputs.
        postscale: multiplies results.
        divides_by_all: whether an average divides by the number of all ranks.
        priority: in MXNet's engine and in Ciranda's.
        carrier: on the root of a broadcast, an array that gets the error; the sent array is then only read.
        is_chained: the name may be in use: dependencies of other arrays order this call after the previous one.

    Raises:
        InvalidArgumentError: the call is invalid, whatever the other ranks do.
    """
    _basics.engine()
    count = len(inputs)
    handles = ctypes.c_void_p * count
    message = buffer.message
    given = handles(*[array.handle.value for array in inputs])
    ended = _push(
        collective,
        given,
        given if inputs is outputs else handles(*[array.handle.value for array in outputs]),
        count,
        name.encode(),
        op,
        root,
        prescale,
        postscale,
        process_set,
        divides_by_all | is_chained << 1,
        priority,
        None if carrier is None else carrier.handle,
        message,
        MESSAGE_BYTES,
    )
    if ended:
        text = message.value.decode(errors="replace")
        if ended == 2:
            raise of_message(text)
        raise (InvalidArgumentError if ended == 1 else InternalError)(f"ciranda.mxnet: {name!r}: {text}")
