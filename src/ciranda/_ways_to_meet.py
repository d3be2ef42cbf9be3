"""How the ranks of this process's world find each other, decided from what its launcher has left behind. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Way(Enum):
    """Who knows how to meet."""

    ENGINE = "what CIRANDA_ and HOROVOD_ variables say, and the engine refuses what contradicts them"
    AGAIN = "what this process met by before, where others than its launcher told it"
    GROUP = "the store of the process group that torch.distributed has"
    TORCH = "the store that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT lead to, as under torchrun"
    PADDLE = "the endpoints that Paddle's launcher has told, of which rank 0 has the first"


_ITS_OWN = ("CIRANDA_SIZE", "CIRANDA_STORE", "CIRANDA_ENGINE", "HOROVOD_SIZE")
_OF_PADDLE = ("PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ID", "PADDLE_TRAINER_ENDPOINTS")
_OF_TORCH = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def way_to_meet(environ: Mapping[str, str], size_of_group: int = 1, has_met: bool = False) -> Way:
    """Who is to be asked.

    `size_of_group` is that of torch.distributed's default group, 1 if there is none; `has_met` says whether the ranks
    have met through a store of torch's already.

    Nobody who says that there is one process alone: then the engine finds out whether somebody contradicts.
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
