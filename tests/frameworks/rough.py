"""What ranks run of the tests of rough callbacks (program/rough.cc)."""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path

import numpy as np
from programs import FOLDER
from ranks import wait_until

import ciranda

THROW, WAIT_FOR_RELEASE, WAIT_FOR_ANOTHER, LEAVE, EXIT = range(5)


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(Path(os.environ[FOLDER]) / "rough.so"))
    library.rough_live.restype = library.rough_thrown.restype = ctypes.c_int64
    assert library.rough_start(ctypes.c_void_p(ciranda.get_c_table_address())) == 0
    return library


def _submit(what: int, name: str) -> None:
    _library().rough_submit(what, name.encode())


def _until_ended() -> None:
    wait_until(lambda: _library().rough_live() == 0)  # its callbacks have returned


def _sum(name: str) -> None:
    total = ciranda.allreduce(np.ones(1000), op=ciranda.Sum, name=name)
    assert total.tolist() == [ciranda.size()] * 1000


def throws() -> int:
    """Return how many exceptions went no further."""
    before = _library().rough_thrown()
    for index in range(10):
        _submit(THROW, f"throws.{index}")
    _until_ended()
    _sum("after")
    return int(_library().rough_thrown() - before)


def takes_long() -> None:
    """On rank 0 a callback takes as long as 20 calls of other tensors, which must not wait for it."""
    _sum("other")
    _submit(WAIT_FOR_RELEASE if ciranda.rank() == 0 else THROW, "takes long")
    for _ in range(20):
        _sum("other")
    _library().rough_release()
    _until_ended()


def waits_for_another() -> int:
    """Return how many have failed."""
    before = _library().rough_thrown()
    for index in range(5):
        _submit(WAIT_FOR_ANOTHER, f"waits.{index}")
    _until_ended()
    return int(_library().rough_thrown() - before)


def leaves() -> None:
    """All leave the world in a callback of rank 0."""
    _submit(LEAVE if ciranda.rank() == 0 else WAIT_FOR_ANOTHER, "leaves")
    _until_ended()


def exits(who: int) -> str:
    """One process ends in its callback. Returns what the others' next call fails with."""
    _submit(EXIT if ciranda.rank() == who else THROW, "exits")
    try:
        while True:
            _sum("later")
    except ciranda.errors.CirandaError as error:
        return f"{type(error).__name__}: {error}"
