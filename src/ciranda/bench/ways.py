"""By which way calls with tensors on GPUs go, and why. Pure.

The way follows from what ranks have told each other, and from nothing that is measured (docs/devices.md). Here it is
taken from the counters of the engine, which know what has carried out a call; the reason, from what ranks tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

#: Of the algorithms that move tensors in GPUs' memory. All others work in host memory.
_BY_ALGORITHM = {"peer": "peer", "nccl": "nccl", "nccl-ciranda": "nccl"}
_MOST_RANKS = 64  # inputs of one reduction on a GPU
_ALL_CAN = "all ranks share a host's memory, and have kernels on their GPUs"


@dataclass(frozen=True)
class Told:
    """What a rank tells.

    Attributes:
        gpu: its name, as "GPU 0 (GPU-5f0a11c2)".
        no_kernels: why that has no kernels of ours; empty if it has.
        settings: of ciranda._core.effective_settings(): CIRANDA_GPU_WAY, _GPU_REDUCE and _SHARED_MEMORY.
    """

    gpu: str
    no_kernels: str
    settings: Mapping[str, object]


def algorithm_of(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """What has carried out the one call between two readings of the calls by each; empty: none, as of one rank."""
    return next((name for name, n_calls in after.items() if n_calls > before.get(name, 0)), "")


def way_of(algorithm: str) -> str:
    """The way of a call that this has carried out."""
    return _BY_ALGORITHM.get(algorithm, "staged")


def title_of(algorithm: str) -> str:
    """The same, with what carries it out there."""
    way = way_of(algorithm)
    return way if algorithm in ("", way) else f"{way}, {algorithm}"


def why(algorithm: str, told: Sequence[Told]) -> str:
    """Why calls of these ranks, all on one host and with their tensors on GPUs, go by that way."""
    return next(_reasons(algorithm, told))


def _reasons(algorithm: str, told: Sequence[Told]) -> Iterator[str]:
    way, settings = way_of(algorithm), told[0].settings
    wanted = settings["CIRANDA_GPU_WAY"]
    if way == "nccl":
        yield f"CIRANDA_GPU_WAY is nccl, and each rank has a GPU of its own; {_who_reduces(algorithm, settings)}"
    if way == "peer" and len(told) == 1:
        yield "one rank needs no other's memory"
    if way == "peer" and wanted == "nccl":
        yield f"NCCL cannot be used, as the warning says; {_ALL_CAN}"
    if way == "peer":
        yield _ALL_CAN
    if wanted == "staged":
        yield "CIRANDA_GPU_WAY is staged"
    for rank, of_rank in enumerate(told):
        if of_rank.no_kernels:
            yield f"rank {rank} has no kernels on {of_rank.gpu}: {of_rank.no_kernels}"
    if not settings["CIRANDA_SHARED_MEMORY"]:
        yield "the ranks share no memory, since CIRANDA_SHARED_MEMORY is off"
    if len(told) > _MOST_RANKS:
        yield f"there are more than {_MOST_RANKS} ranks"
    yield "the ranks cannot use each other's memory on GPUs, as the warning says"


def _who_reduces(algorithm: str, settings: Mapping[str, object]) -> str:
    if algorithm == "nccl":
        return "NCCL does all of it"
    asked = settings["CIRANDA_GPU_REDUCE"] == "ciranda"
    return f"kernels of Ciranda reduce, since {'CIRANDA_GPU_REDUCE is ciranda' if asked else 'NCCL does not do that'}"
