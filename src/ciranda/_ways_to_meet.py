"""The rendezvous of this process's world, chosen from the variables of its launcher. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Way(Enum):
    """The source of the rendezvous."""

    ENGINE = "the CIRANDA_ and HOROVOD_ variables; the engine refuses contradictions"
    AGAIN = "the rendezvous of this process's last world, if its launcher did not give it"
    GROUP = "the store of torch.distributed's process group"
    TORCH = "the store of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as under torchrun"
    PADDLE = "the endpoints of Paddle's launcher, of which rank 0 has the first"


_ITS_OWN = ("CIRANDA_SIZE", "CIRANDA_STORE", "CIRANDA_ENGINE", "HOROVOD_SIZE")
_OF_PADDLE = ("PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ID", "PADDLE_TRAINER_ENDPOINTS")
_OF_TORCH = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_SLOT = {Way.TORCH: _OF_TORCH, Way.PADDLE: _OF_PADDLE}


def way_to_meet(environ: Mapping[str, str], size_of_group: int = 1, has_met: bool = False) -> Way:
    """Return the source of the rendezvous.

    `size_of_group` is that of torch.distributed's default group, 1 if there is none; `has_met`: whether the ranks have
    used a store of torch's already.

    A source that describes a single process is not used: then the engine checks for contradictions.
    """
    if any(environ.get(name) for name in _ITS_OWN):
        return Way.ENGINE
    if size_of_group > 1:
        return Way.GROUP
    if has_met:
        return Way.AGAIN
    if all(environ.get(name) for name in _OF_TORCH) and environ["WORLD_SIZE"] != "1":
        return Way.TORCH
    if all(environ.get(name) for name in _OF_PADDLE) and environ["PADDLE_TRAINERS_NUM"] != "1":
        return Way.PADDLE
    return Way.ENGINE


def slot_of(environ: Mapping[str, str]) -> str | None:
    """Return what tells a rank's slot from all others, of this job and others; None where the engine knows."""
    names = _SLOT.get(way_to_meet(environ))
    return None if names is None else " ".join(f"{name}={environ[name]}" for name in names)
