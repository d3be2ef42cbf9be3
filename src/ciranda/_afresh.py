"""Ranks that stay between functions: after a function that failed on one, all leave the world and meet in another."""

from __future__ import annotations

import ciranda
from ciranda import _core
from ciranda._basics import world


def next_epoch() -> int:
    """Return the number of the first world that this rank has not tried to join."""
    return max(world.epoch, _core.next_epoch())


def leave_for(epoch: int) -> None:
    """Leave the world, and join the one of this number next: the highest next_epoch() of all ranks."""
    ciranda.shutdown()
    world.epoch = max(world.epoch, epoch)
